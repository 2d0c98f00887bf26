package compat;

import static compat.Context.take;

import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/**
 * Committed offsets: by members and others, synchronous and asynchronous, and as the next member
 * reads them.
 */
final class Commits {
    private Commits() {}

    static void register(Suite suite) {
        suite.add("commit-and-resume", context -> commitAndResume(context, Map.of()));
        suite.add(
                "consumer-protocol-commit-and-resume",
                context -> commitAndResume(context, Map.of("group.protocol", "consumer")));
        suite.add("commit-without-membership", Commits::commitWithoutMembership);
        suite.add("commit-by-a-stranger-is-refused", Commits::commitByAStranger);
        suite.add("auto-commit", Commits::autoCommit);
    }

    private static void commitAndResume(Context context, Map<String, ?> protocol) throws Exception {
        String topic = context.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        Map<String, Object> config = new HashMap<>(protocol);
        config.put("group.id", context.unique("g"));
        context.produce(topic, Map.of(), Context.numbers(20));
        KafkaConsumer<byte[], byte[]> consumer = context.consumer(config);
        consumer.subscribe(List.of(topic));
        take(consumer, 20);
        consumer.commitSync(Map.of(partition, new OffsetAndMetadata(7, "by hand: ünïcode")));
        Expect.equal(
                consumer.committed(Set.of(partition)).get(partition),
                new OffsetAndMetadata(7, "by hand: ünïcode"),
                "committed");
        consumer.close();

        KafkaConsumer<byte[], byte[]> next = context.consumer(config);
        next.subscribe(List.of(topic));
        Expect.equal(take(next, 13).get(0).offset(), 7L, "after the commit");
        CompletableFuture<Long> committed = new CompletableFuture<>();
        next.commitAsync(
                (offsets, error) -> {
                    if (error == null) {
                        committed.complete(offsets.get(partition).offset());
                    } else {
                        committed.completeExceptionally(error);
                    }
                });
        Expect.eventually(
                () -> next.poll(Duration.ofMillis(50)).isEmpty() && committed.isDone(),
                10,
                "the callback is called");
        Expect.equal(committed.get(), 20L, "committed asynchronously");
        next.close();

        config.put("group.id", context.unique("other"));
        KafkaConsumer<byte[], byte[]> other = context.consumer(config);
        other.subscribe(List.of(topic));
        Expect.equal(take(other, 1).get(0).offset(), 0L, "another group starts at the beginning");
    }

    /** A consumer with assigned partitions commits to a group that it never joins. */
    private static void commitWithoutMembership(Context context) throws Exception {
        String topic = context.topic(1);
        String group = context.unique("g");
        TopicPartition partition = new TopicPartition(topic, 0);
        context.produce(topic, Map.of(), Context.numbers(5));
        KafkaConsumer<byte[], byte[]> consumer = context.consumer(Map.of("group.id", group));
        consumer.assign(List.of(partition));
        Context.take(consumer, 5);
        consumer.commitSync();
        Expect.equal(
                GroupAdministration.offsets(context, group).get(partition).offset(),
                5L,
                "committed");
    }

    /** While a group has members, only they may commit. */
    private static void commitByAStranger(Context context) throws Exception {
        String topic = context.topic(1);
        String group = context.unique("g");
        TopicPartition partition = new TopicPartition(topic, 0);
        Member member = new Member(context, group, Map.of(), topic);
        Member.settled(List.of(member), List.of(partition));
        KafkaConsumer<byte[], byte[]> stranger = context.consumer(Map.of("group.id", group));
        stranger.assign(List.of(partition));
        Expect.refused(
                CommitFailedException.class,
                () -> {
                    stranger.commitSync(Map.of(partition, new OffsetAndMetadata(1)));
                    return null;
                },
                "commit from outside");
        member.leave();
    }

    private static void autoCommit(Context context) throws Exception {
        String topic = context.topic(1);
        String group = context.unique("g");
        context.produce(topic, Map.of(), Context.numbers(10));
        KafkaConsumer<byte[], byte[]> consumer =
                context.consumer(
                        Map.of(
                                "group.id",
                                group,
                                "enable.auto.commit",
                                true,
                                "auto.commit.interval.ms",
                                200));
        consumer.subscribe(List.of(topic));
        Context.take(consumer, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        Expect.eventually(
                () -> {
                    consumer.poll(Duration.ofMillis(50));
                    OffsetAndMetadata committed =
                            GroupAdministration.offsets(context, group).get(partition);
                    return committed != null && committed.offset() == 10;
                },
                10,
                "committed in the background");
    }
}
