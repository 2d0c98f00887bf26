// Makes the golden batches beside this file with Apache Kafka's own client library, and reads
// batches of ours with it. Needs kafka-clients 4.3.1 and what it depends on in LIBS:
//
//   java -cp "LIBS/*" MakeGolden.java write .
//   java -cp "LIBS/*" MakeGolden.java read FILE...

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;

public class MakeGolden {
    public static void main(String[] args) throws IOException {
        if (args[0].equals("write")) {
            for (CompressionType type : CompressionType.values()) {
                write(Path.of(args[1]), type, 5, -1, type.name + ".batch");
                if (type != CompressionType.NONE)
                    write(Path.of(args[1]), type, 3000, -1, type.name + "-long.batch");
            }
            write(Path.of(args[1]), CompressionType.NONE, 5, 1_800_000_000_000L, "horizon.batch");
        } else {
            for (int i = 1; i < args.length; i++) read(args[i]);
        }
    }

    static void write(Path dir, CompressionType type, int count, long horizon, String name) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            new org.apache.kafka.common.utils.ByteBufferOutputStream(buffer), (byte) 2, Compression.of(type).build(),
            TimestampType.CREATE_TIME, 42L, RecordBatch.NO_TIMESTAMP, 4711L, (short) 3, 99, false, false, 7,
            1 << 20, horizon);
        for (int i = 0; i < count; i++) {
            long timestamp = 1_700_000_000_000L + (i % 3 == 2 ? -i : i * 7L);
            byte[] key = i % 3 == 0 ? null : utf8("key-" + i);
            byte[] value = i % 5 == 4 ? null : utf8("value-" + i + "-" + "x".repeat(i % 50));
            Header[] headers = new Header[i % 4];
            for (int j = 0; j < headers.length; j++)
                headers[j] = new RecordHeader("h" + j, j % 2 == 0 ? utf8("v" + j) : null);
            builder.append(timestamp, key, value, headers);
        }
        MemoryRecords records = builder.build();
        ByteBuffer out = records.buffer();
        byte[] bytes = new byte[out.remaining()];
        out.get(bytes);
        Files.write(dir.resolve(name), bytes);
    }

    static void read(String file) throws IOException {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(Path.of(file))));
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            long count = 0, hash = 0;
            for (org.apache.kafka.common.record.internal.Record record : batch) {
                record.ensureValid();
                count++;
                hash = hash * 31 + record.offset() + record.timestamp() + record.keySize() * 3L + record.valueSize() * 5L;
                for (Header h : record.headers())
                    hash = hash * 31 + h.key().length() + (h.value() == null ? -1 : h.value().length);
            }
            System.out.println(file + ": " + batch + " count=" + count + " of " + batch.countOrNull()
                + " hash=" + hash + " horizon=" + batch.deleteHorizonMs() + " max=" + batch.maxTimestamp());
        }
    }

    static byte[] utf8(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }
}
