package main

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Settings of topics and of the broker: describe, alter, reject.
func registerConfigs(s *suite) {
	s.add("topic-config", topicConfig)
	s.add("topic-config-legacy-alter", topicConfigLegacyAlter)
	s.add("topic-config-refused", topicConfigRefused)
	s.add("broker-config", brokerConfig)
}

func (s *session) configOf(topic string) map[string]kadm.Config {
	described := must(must(s.admin.DescribeTopicConfigs(s.ctx, topic)).On(topic, nil))
	check(described.Err)
	return byKey(described.Configs)
}

func byKey(configs []kadm.Config) map[string]kadm.Config {
	keyed := make(map[string]kadm.Config)
	for _, one := range configs {
		keyed[one.Key] = one
	}
	return keyed
}

func (s *session) alter(topic string, changes ...kadm.AlterConfig) error {
	altered := must(must(s.admin.AlterTopicConfigs(s.ctx, changes, topic)).On(topic, nil))
	return altered.Err
}

func topicConfig(s *session) {
	name := s.topicWith("t", 1, config{"retention.ms": "60000"})
	value := func(key string) string {
		one := s.configOf(name)[key]
		return one.MaybeValue()
	}
	described := s.configOf(name)
	expect(described["retention.ms"].Source, kmsg.ConfigSourceDynamicTopicConfig, "source of a set value")
	holds(described["cleanup.policy"].Source != kmsg.ConfigSourceDynamicTopicConfig, "source of a default")
	expect(value("cleanup.policy"), "delete", "default cleanup.policy")
	check(s.alter(name,
		kadm.AlterConfig{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("2000")},
		kadm.AlterConfig{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: kadm.StringPtr("compact")}))
	eventually(5*time.Second, "altered", func() bool { return value("max.message.bytes") == "2000" })
	holds(strings.Contains(value("cleanup.policy"), "compact"), "appended")
	expect(value("retention.ms"), "60000", "untouched by an incremental change")
	check(s.alter(name,
		kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "retention.ms"},
		kadm.AlterConfig{Op: kadm.SubtractConfig, Name: "cleanup.policy", Value: kadm.StringPtr("compact")}))
	eventually(5*time.Second, "back to the default", func() bool { return value("retention.ms") == "604800000" })
	expect(value("cleanup.policy"), "delete", "subtracted")
}

// AlterConfigs, the old request, replaces every dynamic value of the topic.
func topicConfigLegacyAlter(s *session) {
	name := s.topicWith("t", 1, config{"retention.ms": "60000"})
	changes := []kadm.AlterConfig{{Name: "segment.ms", Value: kadm.StringPtr("70000")}}
	check(must(must(s.admin.AlterTopicConfigsState(s.ctx, changes, name)).On(name, nil)).Err)
	eventually(5*time.Second, "altered", func() bool {
		one := s.configOf(name)["segment.ms"]
		return one.MaybeValue() == "70000"
	})
	left := s.configOf(name)["retention.ms"]
	expect(left.MaybeValue(), "604800000", "a value that was left out")
}

func topicConfigRefused(s *session) {
	name := s.topic(1)
	for key, value := range (config{"no.such.config": "1", "retention.ms": "x", "compression.type": "rar"}) {
		err := s.alter(name, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value})
		refused(err, kerr.InvalidConfig, key+" on alter")
		_, err = s.admin.CreateTopic(s.ctx, 1, 1, config{key: value}.pointers(), s.unique("refused"))
		refused(err, kerr.InvalidConfig, key+" on create")
	}
	absent := s.unique("absent")
	err := s.alter(absent, kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("1")})
	refused(err, kerr.UnknownTopicOrPartition, "alter an absent topic")
	described := must(must(s.admin.DescribeTopicConfigs(s.ctx, absent)).On(absent, nil))
	refused(described.Err, kerr.UnknownTopicOrPartition, "describe an absent topic")
}

func brokerConfig(s *session) {
	node := must(s.admin.ListBrokers(s.ctx))[0].NodeID
	for _, described := range must(s.admin.DescribeBrokerConfigs(s.ctx, node)) {
		check(described.Err)
		for _, key := range []string{"message.max.bytes", "num.partitions", "auto.create.topics.enable"} {
			_, ok := byKey(described.Configs)[key]
			holds(ok, key+" is described")
		}
	}
}
