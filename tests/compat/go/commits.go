package main

import (
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Committed offsets: by members and others, synchronous and asynchronous, and as the next member reads them.
func registerCommits(s *suite) {
	s.add("commit-and-resume", func(s *session) { commitAndResume(s) })
	s.addSlow("consumer-protocol-commit-and-resume", func(s *session) {
		commitAndResume(s, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	})
	s.add("auto-commit", autoCommit)
	s.add("commit-with-metadata", commitWithMetadata)
	s.add("commit-by-a-stranger-is-refused", commitByAStranger)
	s.add("many-groups", manyGroups)
}

func (s *session) inGroup(group, topic string, options ...kgo.Opt) *kgo.Client {
	base := []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	return s.client(append(base, options...)...)
}

// committed is the group's committed offset in partition 0, or -1.
func (s *session) committed(group, topic string) int64 {
	found, ok := must(s.admin.FetchOffsets(s.ctx, group)).Lookup(topic, 0)
	if !ok {
		return -1
	}
	check(found.Err)
	return found.At
}

func commitAndResume(s *session, options ...kgo.Opt) {
	topic, group := s.topic(1), s.unique("g")
	s.produce(topic, numbers(20)...)
	client := s.inGroup(group, topic, options...)
	check(client.CommitRecords(s.ctx, s.take(client, 20)[:7]...))
	expect(s.committed(group, topic), 7, "committed")
	client.Close()

	client = s.inGroup(group, topic, options...)
	expect(values(s.take(client, 13)), numbers(20)[7:], "after the commit")
	client.Close()
	expect(values(s.take(s.inGroup(group, topic, options...), 13)), numbers(20)[7:], "what was not committed comes again")
	expect(s.take(s.inGroup(s.unique("other"), topic, options...), 1)[0].Offset, 0, "another group starts at the beginning")
}

func autoCommit(s *session) {
	topic, group := s.topic(1), s.unique("g")
	s.produce(topic, numbers(10)...)
	client := s.client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(200*time.Millisecond))
	s.take(client, 10)
	// A poll marks the records of the previous one as processed.
	noneWithin(s, client, 500*time.Millisecond)
	eventually(10*time.Second, "committed in the background", func() bool { return s.committed(group, topic) == 10 })
}

func commitWithMetadata(s *session) {
	topic, group := s.topic(1), s.unique("g")
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 3, LeaderEpoch: 0, Metadata: "written by a test: ünïcode"})
	check(s.admin.CommitAllOffsets(s.ctx, group, offsets))
	found, _ := must(s.admin.FetchOffsets(s.ctx, group)).Lookup(topic, 0)
	expect(found.Metadata, "written by a test: ünïcode", "metadata")
	expect(found.At, 3, "offset")
	expect(found.LeaderEpoch, 0, "leader epoch")
}

// While a group has members, only they may commit.
func commitByAStranger(s *session) {
	topic, group := s.topic(1), s.unique("g")
	m := join(s, group, topic)
	settled([]*member{m}, partitionsOf(topic, 1), 20*time.Second)
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 1, -1)
	refused(s.admin.CommitAllOffsets(s.ctx, group, offsets), kerr.UnknownMemberID, "commit from outside")
	m.leave()
}

// Ten groups read the same topic, each on its own.
func manyGroups(s *session) {
	topic := s.topic(1)
	s.produce(topic, numbers(50)...)
	var clients []*kgo.Client
	for n := range 10 {
		clients = append(clients, s.inGroup(s.unique("g"+numbers(10)[n]), topic))
	}
	for n, client := range clients {
		expect(values(s.take(client, 50)), numbers(50), "records of a group")
		check(client.CommitUncommittedOffsets(s.ctx))
		expect(s.committed(s.unique("g"+numbers(10)[n]), topic), 50, "committed")
	}
}
