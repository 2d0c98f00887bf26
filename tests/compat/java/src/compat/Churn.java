package compat;

import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** Members come and go while records flow; every record is processed exactly once. */
final class Churn {
    private Churn() {}

    static void run(Context context, Map<String, ?> config) throws Exception {
        String topic = context.topic(6);
        String group = context.unique("g");
        List<TopicPartition> partitions = Context.partitionsOf(topic, 6);
        AtomicBoolean stop = new AtomicBoolean();
        AtomicLong sent = new AtomicLong();
        Thread feeder = Suite.start(() -> feed(context, topic, stop, sent));
        Member first;
        Member second;
        Member third;
        try {
            first = new Member(context, group, config, topic);
            Member.settled(List.of(first), partitions);
            second = new Member(context, group, config, topic);
            Member.settled(List.of(first, second), partitions);
            third = new Member(context, group, config, topic);
            Member.settled(List.of(first, second, third), partitions);
            Expect.equal(sizes(first, second, third), List.of(2, 2, 2), "balanced");
            first.leave();
            Member.settled(List.of(second, third), partitions);
            Expect.equal(sizes(second, third), List.of(3, 3), "balanced");
        } finally {
            stop.set(true);
            feeder.join(20_000);
        }
        List<Member> members = List.of(first, second, third);
        Expect.eventually(
                () -> {
                    for (Member member : members) {
                        member.check();
                    }
                    return members.stream().mapToLong(m -> m.processed.size()).sum() >= sent.get();
                },
                20,
                "all records are processed");
        second.leave();
        third.leave();
        checkEachOnce(members, sent.get());
        checkCommitted(context, group, partitions);
    }

    private static List<Integer> sizes(Member... members) {
        return List.of(members).stream().map(m -> m.assigned.size()).toList();
    }

    private static void feed(Context context, String topic, AtomicBoolean stop, AtomicLong sent) {
        try (KafkaProducer<byte[], byte[]> producer = context.producer(Map.of())) {
            while (!stop.get()) {
                long n = sent.getAndIncrement();
                producer.send(Context.record(topic, (int) (n % 6), null, String.valueOf(n)));
                Thread.sleep(10);
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException("nobody interrupts the feeder", e);
        }
    }

    private static void checkEachOnce(List<Member> members, long sent) {
        Map<String, Integer> counts = new HashMap<>();
        for (Member member : members) {
            member.processed.forEach(
                    r -> counts.merge(r.partition() + "@" + r.offset(), 1, Integer::sum));
        }
        Expect.equal((long) counts.size(), sent, "distinct records");
        Expect.equal(
                counts.entrySet().stream().filter(c -> c.getValue() != 1).toList(),
                List.of(),
                "records processed twice");
    }

    private static void checkCommitted(
            Context context, String group, List<TopicPartition> partitions) throws Exception {
        var committed =
                Context.done(
                        context.admin
                                .listConsumerGroupOffsets(group)
                                .partitionsToOffsetAndMetadata());
        for (TopicPartition partition : partitions) {
            Expect.equal(
                    committed.get(partition).offset(),
                    context.offset(partition, OffsetSpec.latest()),
                    "committed of " + partition);
        }
    }
}
