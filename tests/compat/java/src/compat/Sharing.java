package compat;

import static compat.ShareMember.allDeliveries;
import static compat.ShareMember.deliveries;
import static compat.ShareMember.gaveUp;
import static compat.ShareMember.values;

import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidRecordStateException;
import org.apache.kafka.common.errors.UnknownServerException;
import org.apache.kafka.common.errors.WakeupException;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;

/** Share consumers: individual records, with every type of acknowledgement. */
final class Sharing {
    private Sharing() {}

    static void register(Suite suite) {
        suite.add("share-implicit-acknowledge", Sharing::implicitAcknowledge);
        suite.add("share-explicit-acknowledge", Sharing::explicitAcknowledge);
        suite.add("share-release-is-delivered-again", Sharing::release);
        suite.add("share-reject-is-final", Sharing::reject);
        suite.add("share-settles-out-of-order", Sharing::outOfOrder);
        suite.add("share-delivery-limit", Sharing::deliveryLimit);
        suite.addSlow("share-lock-expires", Sharing::lockExpires);
        suite.addSlow("share-renew", Sharing::renew);
        suite.add("share-two-consumers-of-one-partition", Sharing::twoConsumers);
        suite.add("share-close-releases", Sharing::closeReleases);
        suite.add("share-commit-callback", Sharing::commitCallback);
        suite.add("share-commit-async", Sharing::commitAsync);
        suite.add("share-wakeup", Sharing::wakeup);
        suite.add("share-many-topics-and-partitions", Sharing::manyPartitions);
        suite.add("share-record-as-it-was", Sharing::asItWas);
        suite.add("share-compressed-batches", Sharing::compressed);
        suite.add("share-record-limit", Sharing::recordLimit);
        suite.add("share-starts-at-the-end", Sharing::startsAtTheEnd);
        suite.add("share-starts-by-duration", Sharing::startsByDuration);
        suite.add("share-waits-for-records", Sharing::waits);
        suite.add("share-new-partitions", Sharing::newPartitions);
        suite.add("share-changes-its-subscription", Sharing::changesSubscription);
        suite.add("share-beside-a-consumer-group", Sharing::besideConsumerGroup);
        suite.add("share-two-groups", Sharing::twoGroups);
        suite.add("share-ordering-by-key", Sharing::orderingByKey);
        suite.add("share-dead-letter", Sharing::deadLetter);
    }

    private static void implicitAcknowledge(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, Map.of(), Context.numbers(20));
        try (ShareMember member = ShareMember.implicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> records = member.take(20);
            Expect.equal(values(records), Context.numbers(20), "records in order");
            Expect.equal(allDeliveries(records), List.of(1), "deliveries");
            // The poll acknowledges the records of the previous one.
            member.expectNothing(1);
        }
        context.produce(topic, "after");
        try (ShareMember other = ShareMember.implicit(context, group, topic)) {
            Expect.equal(values(other.take(1)), List.of("after"), "the next consumer's records");
            other.consumer.commitSync();
        }
    }

    private static void explicitAcknowledge(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, Map.of(), Context.numbers(10));
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> records = member.take(10);
            Expect.refused(
                    IllegalStateException.class,
                    () -> member.consumer.poll(Duration.ofMillis(100)),
                    "a poll before everything was acknowledged");
            records.subList(0, 5).forEach(member.consumer::acknowledge);
            member.acknowledgeAll(records.subList(5, 10), AcknowledgeType.ACCEPT);
            member.commit();
            Expect.refused(
                    IllegalStateException.class,
                    () -> {
                        member.consumer.acknowledge(records.get(0));
                        return null;
                    },
                    "a record that was acknowledged");
            member.expectNothing(1);
        }
    }

    private static void release(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, Map.of(), Context.numbers(6));
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> first =
                    member.take(6, AcknowledgeType.RELEASE);
            Expect.equal(allDeliveries(first), List.of(1), "first delivery");
            List<ConsumerRecord<byte[], byte[]>> second = member.take(6);
            Expect.equal(values(second), Context.numbers(6), "the same records");
            Expect.equal(allDeliveries(second), List.of(2), "second delivery");
            member.acknowledgeAll(second.subList(0, 3), AcknowledgeType.ACCEPT);
            member.acknowledgeAll(second.subList(3, 6), AcknowledgeType.RELEASE);
            member.commit();
            List<ConsumerRecord<byte[], byte[]>> third = member.take(3);
            Expect.equal(values(third), List.of("3", "4", "5"), "those that were released");
            Expect.equal(allDeliveries(third), List.of(3), "third delivery");
            member.acknowledgeAll(third, AcknowledgeType.ACCEPT);
            member.commit();
            member.expectNothing(1);
        }
    }

    private static void reject(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, "good", "poison", "fine");
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> records = member.take(3);
            member.consumer.acknowledge(records.get(0), AcknowledgeType.RELEASE);
            member.consumer.acknowledge(records.get(1), AcknowledgeType.REJECT);
            member.consumer.acknowledge(records.get(2), AcknowledgeType.ACCEPT);
            member.commit();
            Expect.equal(
                    values(member.take(1, AcknowledgeType.ACCEPT)), List.of("good"), "left over");
            member.expectNothing(1);
        }
    }

    private static void outOfOrder(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, Map.of(), Context.numbers(30));
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>(member.take(30));
            for (int i = records.size() - 1; i >= 0; i--) {
                boolean even = i % 2 == 0;
                member.consumer.acknowledge(
                        records.get(i), even ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
            }
            member.commit();
        }
        // A later consumer reads the released records.
        try (ShareMember other = ShareMember.explicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> left = other.take(15, AcknowledgeType.ACCEPT);
            List<String> odd = IntStream.range(0, 15).mapToObj(i -> "" + (2 * i + 1)).toList();
            Expect.equal(values(left), odd, "what was released");
            Expect.equal(allDeliveries(left), List.of(2), "deliveries");
            other.expectNothing(1);
        }
    }

    private static void deliveryLimit(Context context) throws Exception {
        String topic = context.topic(1);
        String group =
                ShareMember.group(
                        context,
                        Map.of(
                                "share.auto.offset.reset", "earliest",
                                "share.delivery.count.limit", "3"));
        context.produce(topic, "poison");
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            for (int delivery = 1; delivery <= 3; delivery++) {
                List<ConsumerRecord<byte[], byte[]>> records =
                        member.take(1, AcknowledgeType.RELEASE);
                Expect.equal(deliveries(records.get(0)), delivery, "delivery count");
            }
            member.expectNothing(2);
            context.produce(topic, "next");
            Expect.equal(
                    values(member.take(1, AcknowledgeType.ACCEPT)), List.of("next"), "goes on");
        }
    }

    private static void lockExpires(Context context) throws Exception {
        String topic = context.topic(1);
        String group =
                ShareMember.group(
                        context,
                        Map.of(
                                "share.auto.offset.reset", "earliest",
                                "share.record.lock.duration.ms", "15000"));
        context.produce(topic, "slow");
        try (ShareMember sleeper = ShareMember.explicit(context, group, topic);
                ShareMember other = ShareMember.explicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> held = sleeper.takeAtOnce();
            Expect.equal(
                    sleeper.consumer.acquisitionLockTimeoutMs().orElse(-1), 15_000, "lock duration");
            List<ConsumerRecord<byte[], byte[]>> again = other.within(5);
            // A lock ends with the node that its holder is connected to.
            Expect.holds(again.isEmpty() || ShareMember.LEADERS_MOVE, "delivered before its time");
            if (again.isEmpty()) {
                again = other.take(1);
            }
            Expect.equal(values(again), List.of("slow"), "after the lock has expired");
            // The leader counts a delivery when its lock ends. If it is killed, or another leader
            // is elected at that moment, the delivery is not counted.
            if (!ShareMember.LEADERS_MOVE) {
                Expect.equal(allDeliveries(again), List.of(2), "delivery count");
            }
            // The other member holds the record now.
            sleeper.consumer.acknowledge(held.get(0));
            Optional<KafkaException> late = sleeper.refusal();
            Expect.holds(
                    late.filter(e -> e instanceof InvalidRecordStateException || gaveUp(e))
                            .isPresent(),
                    "late acknowledge: " + late);
            acceptInTheEnd(other, again.get(0), List.of(other));
            other.expectNothing(2);
        }
    }

    /**
     * Has the holder accept a record. If its client drops the record, it is redelivered to any
     * member, and so on until it is accepted.
     */
    private static void acceptInTheEnd(
            ShareMember holder, ConsumerRecord<byte[], byte[]> record, List<ShareMember> members) {
        while (true) {
            holder.consumer.acknowledge(record);
            Optional<KafkaException> refusal = holder.refusal();
            if (refusal.isEmpty()) {
                return;
            }
            Expect.holds(gaveUp(refusal.get()), "accepted by its holder: " + refusal);
            Optional<Map.Entry<ShareMember, ConsumerRecord<byte[], byte[]>>> next = next(members);
            if (next.isEmpty()) {
                // The response was lost, but the acknowledgement was applied.
                Expect.holds(
                        refusal.get() instanceof UnknownServerException, "it is not delivered again");
                return;
            }
            holder = next.get().getKey();
            record = next.get().getValue();
        }
    }

    /** The next record that any of them receives within 25 s: a lock lasts 15 s. */
    private static Optional<Map.Entry<ShareMember, ConsumerRecord<byte[], byte[]>>> next(
            List<ShareMember> members) {
        long end = System.nanoTime() + 25_000_000_000L;
        while (System.nanoTime() < end) {
            for (ShareMember member : members) {
                for (var record : member.consumer.poll(Duration.ofMillis(200))) {
                    return Optional.of(Map.entry(member, record));
                }
            }
        }
        return Optional.empty();
    }

    private static void renew(Context context) throws Exception {
        String topic = context.topic(1);
        String group =
                ShareMember.group(
                        context,
                        Map.of(
                                "share.auto.offset.reset", "earliest",
                                "share.record.lock.duration.ms", "15000"));
        context.produce(topic, "long work");
        try (ShareMember worker = ShareMember.explicit(context, group, topic);
                ShareMember other = ShareMember.explicit(context, group, topic)) {
            ConsumerRecord<byte[], byte[]> record = worker.takeAtOnce().get(0);
            // 24 seconds of work on a lock of 15.
            for (int i = 0; i < 3; i++) {
                List<ConsumerRecord<byte[], byte[]>> others = other.within(8);
                worker.consumer.acknowledge(record, AcknowledgeType.RENEW);
                Optional<KafkaException> refusal = worker.refusal();
                if (ShareMember.LEADERS_MOVE && !(others.isEmpty() && refusal.isEmpty())) {
                    // The lock ended with the node that the worker is connected to, or the worker's
                    // client dropped the record. One of them holds it, never both.
                    Expect.holds(
                            refusal.filter(e -> gaveUp(e) || !others.isEmpty()).isPresent(),
                            "renewal, while the other has " + values(others) + ": " + refusal);
                    List<ShareMember> members = List.of(worker, other);
                    Optional<Map.Entry<ShareMember, ConsumerRecord<byte[], byte[]>>> next =
                            others.isEmpty()
                                    ? next(members)
                                    : Optional.of(Map.entry(other, others.get(0)));
                    Expect.holds(next.isPresent(), "it is not delivered again: " + refusal);
                    acceptInTheEnd(next.get().getKey(), next.get().getValue(), members);
                    other.expectNothing(2);
                    return;
                }
                Expect.equal(values(others), List.of(), "delivered to the other");
                Expect.holds(refusal.isEmpty(), "renewal: " + refusal);
                // The next poll returns a renewed record again.
                record = worker.take(1).get(0);
                Expect.equal(deliveries(record), 1, "a renewal is no delivery");
            }
            acceptInTheEnd(worker, record, List.of(worker, other));
            other.expectNothing(2);
        }
    }

    private static void twoConsumers(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        Map<String, Object> few = Map.of("max.poll.records", 10);
        Map<String, Integer> seen = new ConcurrentHashMap<>();
        List<Set<String>> each = List.of(new HashSet<>(), new HashSet<>());
        for (int i = 0; i < 40; i++) {
            context.produce(topic, Map.of("batch.size", 0), Context.numbers(5));
        }
        List<Thread> threads = new ArrayList<>();
        List<Exception> failures = new CopyOnWriteArrayList<>();
        for (Set<String> own : each) {
            threads.add(
                    Suite.start(
                            () -> {
                                try (ShareMember member =
                                        ShareMember.explicit(context, group, few, topic)) {
                                    long end = System.nanoTime() + 40_000_000_000L;
                                    while (seen.size() < 200 && System.nanoTime() < end) {
                                        for (var record :
                                                member.consumer.poll(Duration.ofMillis(100))) {
                                            String id = "" + record.offset();
                                            seen.merge(id, 1, Integer::sum);
                                            own.add(id);
                                            member.consumer.acknowledge(record);
                                        }
                                        member.commit();
                                        Thread.sleep(20);
                                    }
                                } catch (Exception e) {
                                    failures.add(e);
                                }
                            }));
        }
        for (Thread thread : threads) {
            thread.join(60_000);
        }
        Expect.equal(failures, List.of(), "failures");
        Expect.equal(seen.size(), 200, "records");
        Expect.equal(Set.copyOf(seen.values()), Set.of(1), "deliveries of each");
        Expect.holds(
                each.stream().noneMatch(Set::isEmpty),
                "both have their share: " + each.stream().map(Set::size).toList());
    }

    private static void closeReleases(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, Map.of(), Context.numbers(8));
        try (ShareMember first = ShareMember.explicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> records = first.take(8);
            // Acknowledgements count, and the other records are available at once.
            first.acknowledgeAll(records.subList(0, 2), AcknowledgeType.ACCEPT);
        }
        long closed = System.nanoTime();
        try (ShareMember second = ShareMember.explicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> rest = second.take(6, AcknowledgeType.ACCEPT);
            Expect.equal(values(rest), List.of("2", "3", "4", "5", "6", "7"), "the rest");
            Expect.equal(allDeliveries(rest), List.of(2), "deliveries");
            Expect.holds(System.nanoTime() - closed < 15_000_000_000L, "before any lock expires");
        }
    }

    private static void commitCallback(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, Map.of(), Context.numbers(5));
        Map<TopicIdPartition, Set<Long>> told = new HashMap<>();
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (ShareMember member = ShareMember.implicit(context, group, topic)) {
            member.consumer.setAcknowledgementCommitCallback(
                    (offsets, exception) -> {
                        offsets.forEach(
                                (p, o) ->
                                        told.computeIfAbsent(p, k -> new HashSet<>()).addAll(o));
                        if (exception != null) {
                            failure.set(exception);
                        }
                    });
            member.take(5);
            Expect.eventually(
                    () -> {
                        member.consumer.poll(Duration.ofMillis(200));
                        return told.values().stream().mapToInt(Set::size).sum() == 5;
                    },
                    20,
                    "the callback hears of all records");
        }
        Expect.equal(failure.get(), null, "exception");
        TopicIdPartition partition = told.keySet().iterator().next();
        Expect.equal(partition.topicPartition(), new TopicPartition(topic, 0), "partition");
        Expect.equal(told.get(partition), Set.of(0L, 1L, 2L, 3L, 4L), "offsets");
    }

    private static void commitAsync(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, Map.of(), Context.numbers(4));
        Set<Long> told = new HashSet<>();
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            member.consumer.setAcknowledgementCommitCallback(
                    (offsets, exception) -> {
                        Expect.equal(exception, null, "exception");
                        offsets.values().forEach(told::addAll);
                    });
            member.acknowledgeAll(member.take(4), AcknowledgeType.ACCEPT);
            member.consumer.commitAsync();
            Expect.eventually(
                    () -> {
                        member.consumer.poll(Duration.ofMillis(200));
                        return told.size() == 4;
                    },
                    20,
                    "the commit is confirmed");
            member.expectNothing(1);
        }
    }

    private static void wakeup(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        try (ShareMember member = ShareMember.implicit(context, group, topic)) {
            member.expectNothing(1);
            Suite.start(
                    () -> {
                        try {
                            Thread.sleep(1000);
                        } catch (InterruptedException e) {
                            return;
                        }
                        member.consumer.wakeup();
                    });
            long start = System.nanoTime();
            Expect.refused(
                    WakeupException.class,
                    () -> member.consumer.poll(Duration.ofSeconds(30)),
                    "a poll that is woken");
            Expect.holds(System.nanoTime() - start < 10_000_000_000L, "at once");
            context.produce(topic, "after");
            Expect.equal(values(member.take(1)), List.of("after"), "goes on afterwards");
        }
    }

    private static void manyPartitions(Context context) throws Exception {
        List<String> topics =
                List.of(
                        context.topic(3, "one", Map.of()),
                        context.topic(4, "two", Map.of()),
                        context.topic(1, "three", Map.of()));
        String group = ShareMember.group(context);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        Set<String> wanted = new HashSet<>();
        for (String topic : topics) {
            for (int partition = 0; partition < context.partitions(topic); partition++) {
                for (int i = 0; i < 20; i++) {
                    String value = topic + "/" + partition + "/" + i;
                    records.add(Context.record(topic, partition, null, value));
                    wanted.add(value);
                }
            }
        }
        context.produceRecords(Map.of(), records);
        try (ShareMember member =
                ShareMember.explicit(context, group, topics.toArray(String[]::new))) {
            Set<String> got = new HashSet<>();
            while (got.size() < wanted.size()) {
                for (ConsumerRecord<byte[], byte[]> record :
                        member.take(1, AcknowledgeType.ACCEPT)) {
                    Expect.holds(got.add(Context.text(record.value())), "each once");
                }
            }
            Expect.equal(got, wanted, "records");
            member.expectNothing(1);
        }
    }

    private static void asItWas(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        long timestamp = System.currentTimeMillis() - 1000;
        byte[] noValue = null;
        ProducerRecord<byte[], byte[]> sent =
                new ProducerRecord<>(topic, 0, timestamp, Context.bytes("k"), noValue);
        sent.headers().add("h", new byte[] {1, 2}).add("h", null);
        context.produceRecords(Map.of(), List.of(sent, Context.record(topic, 0, null, "v")));
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> records = member.take(2, AcknowledgeType.ACCEPT);
            ConsumerRecord<byte[], byte[]> first = records.get(0);
            Expect.equal(Context.text(first.key()), "k", "key");
            Expect.equal(first.value(), null, "value");
            Expect.equal(first.timestamp(), timestamp, "timestamp");
            Expect.equal(first.headers(), sent.headers(), "headers");
            Expect.equal(records.get(1).key(), null, "no key");
            Expect.equal(
                    List.of(first.offset(), records.get(1).offset()), List.of(0L, 1L), "offsets");
        }
    }

    private static void compressed(Context context) throws Exception {
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) {
            String topic = context.topic(1, codec, Map.of());
            String group = context.unique(codec + "-g");
            ShareMember.configure(context, group, Map.of("share.auto.offset.reset", "earliest"));
            Map<String, Object> config = Map.of("compression.type", codec, "linger.ms", 200);
            context.produce(topic, config, Context.numbers(100));
            // Acquires a part of a batch at a time.
            Map<String, Object> few =
                    Map.of("max.poll.records", 30, "share.acquire.mode", "record_limit");
            try (ShareMember member = ShareMember.explicit(context, group, few, topic)) {
                List<ConsumerRecord<byte[], byte[]>> records =
                        member.take(100, AcknowledgeType.ACCEPT);
                Expect.equal(values(records), Context.numbers(100), codec);
            }
        }
    }

    private static void recordLimit(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, Map.of("linger.ms", 200), Context.numbers(50));
        Map<String, Object> strict =
                Map.of("max.poll.records", 7, "share.acquire.mode", "record_limit");
        try (ShareMember member = ShareMember.explicit(context, group, strict, topic);
                ShareMember other = ShareMember.explicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> first = member.takeAtOnce();
            Expect.equal(values(first), Context.numbers(7), "no more than asked for");
            // The rest of the same batch is available to all members.
            List<ConsumerRecord<byte[], byte[]>> rest = other.take(43, AcknowledgeType.ACCEPT);
            Expect.equal(values(rest), Context.numbers(50).subList(7, 50), "the rest");
            member.acknowledgeAll(first, AcknowledgeType.ACCEPT);
            member.commit();
        }
    }

    private static void startsAtTheEnd(Context context) throws Exception {
        String topic = context.topic(1);
        context.produce(topic, "before");
        try (ShareMember member = ShareMember.explicit(context, context.unique("g"), topic)) {
            // The end offset is fixed by the first fetch, which may take a while.
            List<String> got = new ArrayList<>();
            Expect.eventually(
                    () -> {
                        context.produce(topic, "after");
                        for (var record : member.consumer.poll(Duration.ofMillis(500))) {
                            got.add(Context.text(record.value()));
                            member.consumer.acknowledge(record);
                        }
                        return !got.isEmpty();
                    },
                    30,
                    "records");
            Expect.equal(Set.copyOf(got), Set.of("after"), "records");
        }
    }

    private static void startsByDuration(Context context) throws Exception {
        String topic = context.topic(1);
        long now = System.currentTimeMillis();
        context.produceRecords(
                Map.of(),
                List.of(
                        new ProducerRecord<>(
                                topic, 0, now - 50 * 60_000, null, Context.bytes("old")),
                        new ProducerRecord<>(
                                topic, 0, now - 60_000, null, Context.bytes("recent"))));
        String group =
                ShareMember.group(
                        context, Map.of("share.auto.offset.reset", "by_duration:PT10M"));
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            Expect.equal(
                    values(member.take(1, AcknowledgeType.ACCEPT)), List.of("recent"), "records");
        }
    }

    private static void waits(Context context) throws Exception {
        String topic = context.topic(2);
        String group = ShareMember.group(context);
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            member.expectNothing(2);
            for (int i = 0; i < 5; i++) {
                long start = System.nanoTime();
                context.produceRecords(
                        Map.of("linger.ms", 0),
                        List.of(Context.record(topic, i % 2, null, "" + i)));
                Expect.equal(
                        values(member.take(1, AcknowledgeType.ACCEPT)), List.of("" + i), "record");
                Expect.holds(System.nanoTime() - start < 5_000_000_000L, "soon");
            }
        }
    }

    private static void newPartitions(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            context.produce(topic, "first");
            member.take(1, AcknowledgeType.ACCEPT);
            Context.done(
                    context.admin
                            .createPartitions(
                                    Map.of(
                                            topic,
                                            org.apache.kafka.clients.admin.NewPartitions
                                                    .increaseTo(2)))
                            .all());
            Expect.eventually(
                    () -> context.partitions(topic) == 2, 10, "metadata shows the new partition");
            context.produceRecords(Map.of(), List.of(Context.record(topic, 1, null, "second")));
            ConsumerRecord<byte[], byte[]> record =
                    member.take(1, AcknowledgeType.ACCEPT).get(0);
            Expect.equal(record.partition(), 1, "partition");
        }
    }

    private static void changesSubscription(Context context) throws Exception {
        String one = context.topic(1, "one", Map.of());
        String two = context.topic(1, "two", Map.of());
        String group = ShareMember.group(context);
        context.produce(one, "a");
        context.produce(two, "b");
        try (ShareMember member = ShareMember.explicit(context, group, one)) {
            Expect.equal(values(member.take(1, AcknowledgeType.ACCEPT)), List.of("a"), "first");
            member.consumer.subscribe(List.of(two));
            Expect.equal(values(member.take(1, AcknowledgeType.ACCEPT)), List.of("b"), "then");
            context.produce(one, "c");
            member.expectNothing(2);
            member.consumer.unsubscribe();
            member.consumer.subscribe(List.of(one, two));
            Expect.equal(values(member.take(1, AcknowledgeType.ACCEPT)), List.of("c"), "at last");
        }
    }

    private static void besideConsumerGroup(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, Map.of(), Context.numbers(10));
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            member.take(10, AcknowledgeType.ACCEPT);
        }
        // Settled records stay readable by offset.
        Expect.equal(context.readValues(topic, 10), Context.numbers(10), "read by offset");
    }

    private static void twoGroups(Context context) throws Exception {
        String topic = context.topic(1);
        context.produce(topic, Map.of(), Context.numbers(10));
        for (String name : List.of("g1", "g2")) {
            String group = context.unique(name);
            ShareMember.configure(context, group, Map.of("share.auto.offset.reset", "earliest"));
            try (ShareMember member = ShareMember.explicit(context, group, topic)) {
                Expect.equal(
                        values(member.take(10, AcknowledgeType.ACCEPT)),
                        Context.numbers(10),
                        name);
            }
        }
    }

    /** Postroad's: one record of each key at a time, and a failing one blocks its own key only. */
    private static void orderingByKey(Context context) throws Exception {
        if (!ShareMember.offers(context, "share.ordering")) {
            return;
        }
        String topic = context.topic(1);
        String group =
                ShareMember.group(
                        context,
                        Map.of("share.auto.offset.reset", "earliest", "share.ordering", "key"));
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            for (String key : List.of("a", "b", "c")) {
                records.add(Context.record(topic, 0, key, key + i));
            }
        }
        context.produceRecords(Map.of(), records);
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> heads = member.take(3);
            Expect.equal(values(heads), List.of("a0", "b0", "c0"), "one of each key");
            member.consumer.acknowledge(heads.get(0), AcknowledgeType.ACCEPT);
            member.consumer.acknowledge(heads.get(1), AcknowledgeType.RELEASE);
            member.consumer.acknowledge(heads.get(2), AcknowledgeType.ACCEPT);
            member.commit();
            List<ConsumerRecord<byte[], byte[]>> next = member.take(3);
            Expect.equal(
                    Set.copyOf(values(next)), Set.of("a1", "b0", "c1"), "b waits for its head");
            member.acknowledgeAll(next, AcknowledgeType.ACCEPT);
            member.commit();
            List<String> last = new ArrayList<>();
            while (last.size() < 4) {
                last.addAll(values(member.take(1, AcknowledgeType.ACCEPT)));
            }
            Expect.equal(Set.copyOf(last), Set.of("a2", "b1", "c2", "b2"), "the rest");
            Expect.holds(last.indexOf("b1") < last.indexOf("b2"), "b in order: " + last);
        }
    }

    /** KIP-1191, from Kafka 4.4 on. */
    private static void deadLetter(Context context) throws Exception {
        if (!ShareMember.offers(context, "errors.deadletterqueue.topic.name")) {
            return;
        }
        String topic = context.topic(1);
        String dead = "dlq." + context.unique("dead");
        context.deleteAfterwards(dead);
        Context.done(
                context.admin
                        .createTopics(
                                List.of(
                                        new org.apache.kafka.clients.admin.NewTopic(
                                                        dead, 1, (short) 1)
                                                .configs(
                                                        Map.of(
                                                                "errors.deadletterqueue.group.enable",
                                                                "true"))))
                        .all());
        String group =
                ShareMember.group(
                        context,
                        Map.of(
                                "share.auto.offset.reset", "earliest",
                                "share.delivery.count.limit", "2",
                                "errors.deadletterqueue.topic.name", dead,
                                "errors.deadletterqueue.copy.record.enable", "true"));
        context.produceRecords(
                Map.of(),
                List.of(
                        Context.record(topic, 0, "k", "rejected"),
                        Context.record(topic, 0, null, "hopeless"),
                        Context.record(topic, 0, null, "good")));
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            List<ConsumerRecord<byte[], byte[]>> records = member.take(3);
            member.consumer.acknowledge(records.get(0), AcknowledgeType.REJECT);
            member.consumer.acknowledge(records.get(1), AcknowledgeType.RELEASE);
            member.consumer.acknowledge(records.get(2), AcknowledgeType.ACCEPT);
            member.commit();
            Expect.equal(
                    values(member.take(1, AcknowledgeType.RELEASE)),
                    List.of("hopeless"),
                    "tried again");
            member.expectNothing(1);
        }
        List<ConsumerRecord<byte[], byte[]>> letters =
                context.read(new TopicPartition(dead, 0), 2);
        Expect.equal(values(letters), List.of("rejected", "hopeless"), "dead letters");
        Expect.equal(Context.text(letters.get(0).key()), "k", "key");
        expectHeaders(letters.get(0), topic, group, "0", "1", "Offset rejected by client.");
        expectHeaders(
                letters.get(1),
                topic,
                group,
                "1",
                "2",
                "Offset delivery count exceeded the threshold.");
    }

    private static void expectHeaders(
            ConsumerRecord<byte[], byte[]> letter,
            String topic,
            String group,
            String offset,
            String deliveries,
            String message) {
        Map<String, String> wanted =
                Map.of(
                        "__dlq.errors.topic", topic,
                        "__dlq.errors.partition", "0",
                        "__dlq.errors.offset", offset,
                        "__dlq.errors.group", group,
                        "__dlq.errors.delivery.count", deliveries,
                        "__dlq.errors.message", message);
        Map<String, String> got = new HashMap<>();
        letter.headers().forEach(h -> got.put(h.key(), Context.text(h.value())));
        got.keySet().retainAll(wanted.keySet());
        Expect.equal(got, wanted, "headers of a dead letter");
    }
}
