import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * What Kafka's EndToEndLatency measures, with its client settings, in microseconds: produce one
 * record with acks=all, wait for the acknowledgement, poll until it is consumed, and again.
 * Kafka's own tool prints whole milliseconds, which is too coarse to compare brokers here.
 */
public final class RoundTrip {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        TopicPartition partition = new TopicPartition(args[1], 0);
        int count = Integer.parseInt(args[2]);
        int warmUp = Integer.parseInt(args[3]);
        byte[] value = new byte[Integer.parseInt(args[4])];
        Arrays.fill(value, (byte) 'x');

        Properties common = new Properties();
        common.put("bootstrap.servers", bootstrap);
        Properties producing = new Properties();
        producing.putAll(common);
        producing.put("acks", "all");
        producing.put("linger.ms", "0");
        producing.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        producing.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        Properties consuming = new Properties();
        consuming.putAll(common);
        consuming.put("enable.auto.commit", "false");
        consuming.put("fetch.max.wait.ms", "0");
        consuming.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        consuming.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");

        long[] acknowledged = new long[count];
        long[] consumed = new long[count];
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producing);
             KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consuming)) {
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            consumer.position(partition);
            for (int i = -warmUp; i < count; i++) {
                long begun = System.nanoTime();
                producer.send(new ProducerRecord<>(partition.topic(), 0, null, value)).get();
                long answered = System.nanoTime();
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(30));
                long done = System.nanoTime();
                if (records.count() != 1) {
                    throw new IllegalStateException("expected one record, got " + records.count());
                }
                if (i >= 0) {
                    acknowledged[i] = answered - begun;
                    consumed[i] = done - begun;
                }
            }
        }
        print("acknowledged", acknowledged);
        print("consumed", consumed);
    }

    /** One line: NAME p50 p99 p99.9 maximum, in microseconds. */
    private static void print(String name, long[] nanos) {
        Arrays.sort(nanos);
        System.out.printf("%s %.1f %.1f %.1f %.1f%n", name, at(nanos, 0.5), at(nanos, 0.99),
            at(nanos, 0.999), nanos[nanos.length - 1] / 1000.0);
    }

    private static double at(long[] sorted, double quantile) {
        return sorted[(int) Math.min(sorted.length - 1, Math.ceil(quantile * sorted.length) - 1)] / 1000.0;
    }
}
