package compat;

import static compat.Context.done;

import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Settings of topics and of the broker: describe, alter, reject. */
final class Configs {
    private Configs() {}

    static void register(Suite suite) {
        suite.add("topic-config", Configs::topicConfig);
        suite.add("topic-config-refused", Configs::topicConfigRefused);
        suite.add("topic-config-documentation", Configs::topicConfigDocumentation);
        suite.add("broker-config", Configs::brokerConfig);
    }

    private static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    private static Config config(Context context, String topic) throws Exception {
        return done(context.admin.describeConfigs(List.of(resource(topic))).all())
                .get(resource(topic));
    }

    private static String value(Context context, String topic, String key) throws Exception {
        return config(context, topic).get(key).value();
    }

    private static AlterConfigOp change(OpType operation, String key, String value) {
        return new AlterConfigOp(new ConfigEntry(key, value), operation);
    }

    private static Void alter(
            Context context, String topic, boolean validateOnly, AlterConfigOp... changes)
            throws Exception {
        Map<ConfigResource, Collection<AlterConfigOp>> request =
                Map.of(resource(topic), List.of(changes));
        return done(
                context.admin
                        .incrementalAlterConfigs(
                                request, new AlterConfigsOptions().validateOnly(validateOnly))
                        .all());
    }

    private static void topicConfig(Context context) throws Exception {
        String topic = context.topic(Map.of("retention.ms", "60000"));
        Config config = config(context, topic);
        Expect.equal(
                config.get("retention.ms").source(),
                ConfigSource.DYNAMIC_TOPIC_CONFIG,
                "source of a set value");
        Expect.equal(config.get("cleanup.policy").value(), "delete", "default cleanup.policy");
        Expect.equal(config.get("cleanup.policy").isDefault(), true, "a default is told");
        for (String key :
                List.of(
                        "max.message.bytes",
                        "segment.bytes",
                        "message.timestamp.type",
                        "compression.type",
                        "min.insync.replicas")) {
            Expect.holds(config.get(key) != null, key + " is described");
        }
        alter(
                context,
                topic,
                false,
                change(OpType.SET, "max.message.bytes", "2000"),
                change(OpType.APPEND, "cleanup.policy", "compact"));
        Expect.eventually(
                () -> value(context, topic, "max.message.bytes").equals("2000"), 5, "altered");
        Expect.equal(
                Set.of(value(context, topic, "cleanup.policy").split(",")),
                Set.of("delete", "compact"),
                "appended");
        Expect.equal(
                value(context, topic, "retention.ms"),
                "60000",
                "untouched by an incremental change");
        alter(
                context,
                topic,
                false,
                change(OpType.DELETE, "retention.ms", null),
                change(OpType.SUBTRACT, "cleanup.policy", "compact"));
        Expect.eventually(
                () -> value(context, topic, "retention.ms").equals("604800000"),
                5,
                "back to the default");
        Expect.equal(value(context, topic, "cleanup.policy"), "delete", "subtracted");
        alter(context, topic, true, change(OpType.SET, "retention.ms", "1234"));
        Expect.equal(value(context, topic, "retention.ms"), "604800000", "after validateOnly");
    }

    private static void topicConfigRefused(Context context) throws Exception {
        String topic = context.topic(1);
        for (Map.Entry<String, String> bad :
                Map.of(
                                "no.such.config",
                                "1",
                                "retention.ms",
                                "x",
                                "compression.type",
                                "rar",
                                "cleanup.policy",
                                "burn",
                                "segment.bytes",
                                "-1")
                        .entrySet()) {
            AlterConfigOp change = change(OpType.SET, bad.getKey(), bad.getValue());
            Expect.refused(
                    InvalidConfigurationException.class,
                    () -> alter(context, topic, false, change),
                    bad + " on alter");
            NewTopic created =
                    new NewTopic(context.unique("refused"), 1, (short) 1)
                            .configs(Map.of(bad.getKey(), bad.getValue()));
            Expect.refused(
                    InvalidConfigurationException.class,
                    () -> done(context.admin.createTopics(List.of(created)).all()),
                    bad + " on create");
        }
        String absent = context.unique("absent");
        Expect.refused(
                UnknownTopicOrPartitionException.class,
                () -> alter(context, absent, false, change(OpType.SET, "retention.ms", "1")),
                "alter an absent topic");
        Expect.refused(
                UnknownTopicOrPartitionException.class,
                () -> config(context, absent),
                "describe an absent topic");
    }

    private static void topicConfigDocumentation(Context context) throws Exception {
        String topic = context.topic(Map.of("retention.ms", "60000"));
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        ConfigEntry entry =
                done(context.admin.describeConfigs(List.of(resource(topic)), options).all())
                        .get(resource(topic))
                        .get("retention.ms");
        Expect.equal(entry.type(), ConfigEntry.ConfigType.LONG, "type");
        Expect.equal(entry.synonyms().get(0).value(), "60000", "the first synonym is what holds");
    }

    private static void brokerConfig(Context context) throws Exception {
        var broker =
                new ConfigResource(
                        ConfigResource.Type.BROKER, String.valueOf(Topics.brokerId(context)));
        Config config = done(context.admin.describeConfigs(List.of(broker)).all()).get(broker);
        for (String key :
                List.of("message.max.bytes", "num.partitions", "auto.create.topics.enable")) {
            Expect.holds(config.get(key) != null, key + " is described");
        }
    }
}
