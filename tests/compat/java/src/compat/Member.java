package compat;

import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * One consumer of a group in a thread of its own; it records every message and commits before the
 * next poll.
 */
final class Member implements ConsumerRebalanceListener {
    final KafkaConsumer<byte[], byte[]> consumer;
    final List<ConsumerRecord<byte[], byte[]>> processed = new CopyOnWriteArrayList<>();
    final AtomicInteger assignments = new AtomicInteger();
    volatile Set<TopicPartition> assigned = Set.of();
    volatile Exception failure;
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
    private volatile boolean stopping;
    private final Thread thread;

    /** How the member subscribes: to names or to a pattern. */
    interface Subscription {
        void subscribe(KafkaConsumer<byte[], byte[]> consumer, ConsumerRebalanceListener listener);
    }

    Member(Context context, String group, Map<String, ?> config, Subscription subscription) {
        Map<String, Object> all = new HashMap<>(config);
        all.put("group.id", group);
        consumer = context.consumer(all);
        subscription.subscribe(consumer, this);
        thread = Suite.start(this::work);
    }

    Member(Context context, String group, Map<String, ?> config, String... topics) {
        this(
                context,
                group,
                config,
                (consumer, listener) -> consumer.subscribe(List.of(topics), listener));
    }

    private void work() {
        try {
            while (!stopping) {
                for (ConsumerRecord<byte[], byte[]> record :
                        consumer.poll(Duration.ofMillis(100))) {
                    processed.add(record);
                    uncommitted.put(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                // The assignment changes only inside poll, so this view of it is consistent.
                assigned = Set.copyOf(consumer.assignment());
                commit();
            }
            consumer.close();
        } catch (Exception e) {
            failure = e;
        }
    }

    /**
     * While the group rebalances, a commit may have to wait for the next poll; the partitions stay
     * ours until revoked.
     */
    private void commit() {
        try {
            if (!uncommitted.isEmpty()) {
                consumer.commitSync(uncommitted);
                uncommitted.clear();
            }
        } catch (RebalanceInProgressException e) {
            // The next iteration commits.
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        assignments.incrementAndGet();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        failure = new CommitFailedException("partitions were lost: " + partitions);
    }

    void leave() throws Exception {
        stopping = true;
        thread.join(20_000);
        Expect.holds(!thread.isAlive(), "the member leaves in time");
        check();
    }

    void check() throws Exception {
        if (failure != null) {
            throw failure;
        }
    }

    /**
     * Waits until each of the partitions has exactly one owner, and each member at least one of
     * them.
     */
    static void settled(List<Member> members, Collection<TopicPartition> partitions, int seconds)
            throws Exception {
        Expect.eventually(
                () -> {
                    Set<TopicPartition> all = new HashSet<>();
                    int count = 0;
                    for (Member member : members) {
                        member.check();
                        Set<TopicPartition> held = member.assigned;
                        if (held.isEmpty()) {
                            return false;
                        }
                        all.addAll(held);
                        count += held.size();
                    }
                    return count == partitions.size() && all.equals(new HashSet<>(partitions));
                },
                seconds,
                "the group settles");
    }

    static void settled(List<Member> members, Collection<TopicPartition> partitions)
            throws Exception {
        settled(members, partitions, 40);
    }
}
