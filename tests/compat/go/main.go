// The scenarios that franz-go, an independent Go client, must pass against any Kafka broker.
package main

import "os"

// Runs the scenarios whose name contains any of the arguments, or all of them.
func main() {
	var s suite
	registerTopics(&s)
	registerConfigs(&s)
	registerProducing(&s)
	registerConsuming(&s)
	registerCommits(&s)
	registerGroups(&s)
	registerMembership(&s)
	registerStorage(&s)
	if s.run(os.Getenv("BOOTSTRAP"), os.Args[1:]) > 0 {
		os.Exit(1)
	}
}
