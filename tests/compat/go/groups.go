package main

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Administration of groups and their offsets.
func registerGroups(s *suite) {
	s.add("list-and-describe-groups", listAndDescribeGroups)
	s.addSlow("consumer-protocol-describe", consumerProtocolDescribe)
	s.add("delete-group", deleteGroup)
	s.add("list-and-alter-group-offsets", listAndAlterGroupOffsets)
	s.add("delete-group-offsets", deleteGroupOffsets)
	s.add("remove-members-from-group", removeMembersFromGroup)
	s.add("group-lag", groupLag)
}

func listAndDescribeGroups(s *session) {
	topic, group := s.topic(2), s.unique("g")
	m := join(s, group, topic, kgo.ClientID("described"), kgo.InstanceID("static-one"), kgo.Balancers(kgo.RangeBalancer()))
	settled([]*member{m}, partitionsOf(topic, 2), 20*time.Second)
	eventually(10*time.Second, "stable", func() bool { return must(s.admin.ListGroups(s.ctx))[group].State == "Stable" })
	listed := must(s.admin.ListGroups(s.ctx, "Empty"))
	_, among := listed[group]
	holds(!among, "not among the empty ones")
	expect(must(s.admin.ListGroupsByType(s.ctx, []string{"classic"}))[group].ProtocolType, "consumer", "listed by type")
	described := must(s.admin.DescribeGroups(s.ctx, group))[group]
	check(described.Err)
	expect([]string{described.State, described.ProtocolType, described.Protocol}, []string{"Stable", "consumer", "range"}, "group")
	expect(len(described.Members), 1, "members")
	expect(described.Members[0].ClientID, "described", "client id")
	expect(*described.Members[0].InstanceID, "static-one", "instance id")
	holds(described.Members[0].ClientHost != "", "host")
	expect(described.AssignedPartitions().Sorted()[0].Partitions, []int32{0, 1}, "assignment")
	m.leave()
}

func consumerProtocolDescribe(s *session) {
	topic, group := s.topic(2), s.unique("g")
	m := join(s, group, topic, kgo.ClientID("described"), kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	settled([]*member{m}, partitionsOf(topic, 2), 20*time.Second)
	describe := func() kadm.DescribedConsumerGroup { return must(s.admin.DescribeConsumerGroups(s.ctx, group))[group] }
	eventually(15*time.Second, "stable", func() bool { return describe().State == "Stable" })
	described := describe()
	expect(described.AssignorName, "uniform", "assignor")
	expect(len(described.Members), 1, "members")
	expect(described.Members[0].ClientID, "described", "client id")
	expect(described.AssignedPartitions().Sorted()[0].Partitions, []int32{0, 1}, "assignment")
	_, among := must(s.admin.ListGroupsByType(s.ctx, []string{"consumer"}))[group]
	holds(among, "listed by type")
	m.leave()
	eventually(15*time.Second, "empty once all left", func() bool { return describe().State == "Empty" })
}

func deleteGroup(s *session) {
	topic, group := s.topic(1), s.unique("g")
	s.produce(topic, "x")
	m := join(s, group, topic)
	eventually(20*time.Second, "processed", func() bool { return len(m.records()) == 1 })
	_, err := s.admin.DeleteGroup(s.ctx, group)
	refused(err, kerr.NonEmptyGroup, "a group with members")
	m.leave()
	eventually(10*time.Second, "deleted once it is empty", func() bool {
		_, err := s.admin.DeleteGroup(s.ctx, group)
		return err == nil
	})
	_, among := must(s.admin.ListGroups(s.ctx))[group]
	holds(!among, "not listed")
	expect(s.committed(group, topic), -1, "its offsets are gone")
	_, err = s.admin.DeleteGroup(s.ctx, group)
	refused(err, kerr.GroupIDNotFound, "an absent group")
}

func listAndAlterGroupOffsets(s *session) {
	topic, group := s.topic(2), s.unique("g")
	s.produce(topic, numbers(10)...)
	alter := func() error {
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, 0, 4, -1)
		offsets.AddOffset(topic, 1, 0, -1)
		return s.admin.CommitAllOffsets(s.ctx, group, offsets)
	}
	check(alter())
	expect(len(must(s.admin.FetchOffsets(s.ctx, group)).Sorted()), 2, "offsets of a group made by altering")
	m := join(s, group, topic)
	eventually(20*time.Second, "the six records from offset 4 on", func() bool { return len(m.records()) == 6 })
	m.leave()
	expect(s.committed(group, topic), 10, "after consuming")
	check(alter())
	expect(s.committed(group, topic), 4, "rewound")
}

func deleteGroupOffsets(s *session) {
	topic, group := s.topic(2), s.unique("g")
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 1, -1)
	offsets.AddOffset(topic, 1, 2, -1)
	check(s.admin.CommitAllOffsets(s.ctx, group, offsets))
	m := join(s, group, topic)
	settled([]*member{m}, partitionsOf(topic, 2), 20*time.Second)
	first := kadm.TopicsSet{}
	first.Add(topic, 0)
	deleteFirst := func() error { return must(s.admin.DeleteOffsets(s.ctx, group, first)).Error() }
	refused(deleteFirst(), kerr.GroupSubscribedToTopic, "while subscribed")
	m.leave()
	check(deleteFirst())
	expect(s.committed(group, topic), -1, "the deleted offset")
	expect(len(must(s.admin.FetchOffsets(s.ctx, group)).Sorted()), 1, "offsets that are left")
}

func removeMembersFromGroup(s *session) {
	topic, group := s.topic(1), s.unique("g")
	m := join(s, group, topic, kgo.InstanceID("removed"))
	settled([]*member{m}, partitionsOf(topic, 1), 20*time.Second)
	m.leave()
	members := func() int { return len(must(s.admin.DescribeGroups(s.ctx, group))[group].Members) }
	expect(members(), 1, "a static member that stopped is still a member")
	left := must(s.admin.LeaveGroup(s.ctx, kadm.LeaveGroup(group).InstanceIDs("removed")))
	check(left.Error())
	eventually(10*time.Second, "removed", func() bool { return members() == 0 })
}

func groupLag(s *session) {
	topic, group := s.topic(1), s.unique("g")
	s.produce(topic, numbers(10)...)
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 4, -1)
	check(s.admin.CommitAllOffsets(s.ctx, group, offsets))
	lags := s.lag(group).Lag.Sorted()
	index := slices.IndexFunc(lags, func(l kadm.GroupMemberLag) bool { return l.Topic == topic && l.Partition == 0 })
	holds(index >= 0, "the partition's lag is told")
	expect(lags[index].Lag, 6, "lag")
}
