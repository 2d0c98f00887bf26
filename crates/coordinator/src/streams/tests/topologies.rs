//! Topologies configured with the existing topics.

use super::*;

#[test]
fn internal_topics_get_the_partition_count_of_the_sources() {
    let mut world = World::new(counting());
    world.topics.make("in", 4);
    let first = world.joins("a", "p");
    assert!(world.clients[first].has_status(StatusCode::MissingInternalTopics));
    assert_eq!(world.group.state_name(), "NotReady");
    assert_eq!(
        *world.topics.0.borrow(),
        [("in".to_owned(), 4), ("app-repartition".to_owned(), 4), ("app-changelog".to_owned(), 4)]
            .into()
    );
    world.settles();
    assert_eq!(world.clients[first].does(), (8, 0));
    assert_eq!(world.clients[first].statuses, []);
    let topology = world.group.topology().expect("is there");
    assert_eq!(topology.subtopologies[1].changelogs[0].partitions, 4);
}

#[test]
fn missing_source_topic_delays_the_tasks() {
    let mut world = World::new(counting());
    let first = world.joins("a", "p");
    assert!(world.clients[first].has_status(StatusCode::MissingSourceTopics));
    assert_eq!(world.clients[first].statuses[0].detail, "Source topics in are missing.");
    world.topics.make("in", 2);
    world.reports(first).expect("is taken");
    world.settles();
    assert_eq!(world.clients[first].does(), (4, 0));
}

#[test]
fn joined_topics_must_have_equal_partition_counts() {
    let mut join = subtopology("0", &["left", "right"]);
    join.copartition_groups = vec![CopartitionGroup {
        sources: vec![0, 1],
        patterns: vec![],
        repartition_sources: vec![],
    }];
    let mut world = World::new(Topology { epoch: 0, subtopologies: vec![join] });
    world.topics.make("left", 2);
    world.topics.make("right", 3);
    let first = world.joins("a", "p");
    assert!(world.clients[first].has_status(StatusCode::IncorrectlyPartitionedTopics));
    assert_eq!(
        world.clients[first].statuses[0].detail,
        "Following topics do not have the same number of partitions: [left=2, right=3]"
    );
}

#[test]
fn repartition_topic_gets_the_partition_count_of_its_join_partner() {
    let mut writer = subtopology("0", &["wide"]);
    writer.repartition_sinks = vec![text("r")];
    let mut join = subtopology("1", &["narrow"]);
    join.repartition_sources = vec![internal("r", 0)];
    join.copartition_groups =
        vec![CopartitionGroup { sources: vec![0], patterns: vec![], repartition_sources: vec![0] }];
    let mut world = World::new(Topology { epoch: 0, subtopologies: vec![writer, join] });
    world.topics.make("wide", 6);
    world.topics.make("narrow", 2);
    world.joins("a", "p");
    world.settles();
    assert_eq!(world.topics.0.borrow()["r"], 2);
}

#[test]
fn impossible_topologies_are_rejected() {
    let refused = |topology: Topology| {
        let checked = topology.check();
        let topics = Topics::default();
        topics.make("in", 1);
        checked.and_then(|()| topology.configure(&topics)).unwrap_err().kind
    };
    let mut fixed = counting();
    fixed.subtopologies[1].changelogs[0].partitions = 3;
    assert_eq!(refused(fixed), ErrorKind::StreamsInvalidTopology);
    let mut unwritten = counting();
    unwritten.subtopologies[0].repartition_sinks.clear();
    assert_eq!(refused(unwritten), ErrorKind::StreamsInvalidTopology);
    let mut pattern = counting();
    pattern.subtopologies[0].source_patterns = vec![text("in.*")];
    assert_eq!(refused(pattern), ErrorKind::InvalidRequest);
    let mut nowhere = counting();
    nowhere.subtopologies[0].copartition_groups =
        vec![CopartitionGroup { sources: vec![7], patterns: vec![], repartition_sources: vec![] }];
    assert_eq!(refused(nowhere), ErrorKind::StreamsInvalidTopology);
    let mut circle = counting();
    circle.subtopologies[0].source_topics.clear();
    circle.subtopologies[0].repartition_sources = vec![internal("app-repartition", 0)];
    assert_eq!(refused(circle), ErrorKind::StreamsInvalidTopology);
    let mut huge = counting();
    huge.subtopologies[1].repartition_sources[0].partitions = i32::MAX;
    assert_eq!(refused(huge), ErrorKind::StreamsInvalidTopology);
}
