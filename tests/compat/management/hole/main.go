// rabbit-hole, the Go client of Terraform's provider and of RabbitMQ's operators, against a server:
//
//	hole SCENARIO HTTP-URL
//
// It prints a reason and exits with 1 if a response is not as such a tool needs it.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	hole "github.com/michaelklishin/rabbit-hole/v3"
)

var scenarios = map[string]func(*hole.Client) error{
	"node":        node,
	"declared":    declared,
	"permissions": permissions,
	"policies":    policies,
	"absent":      absent,
	"limits":      limits,
	"definitions": definitions,
	"live":        live,
}

func main() {
	if len(os.Args) != 3 || scenarios[os.Args[1]] == nil {
		fmt.Println("hole SCENARIO HTTP-URL")
		os.Exit(2)
	}
	client, err := hole.NewClient(os.Args[2], "root", "toor")
	if err == nil {
		err = scenarios[os.Args[1]](client)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// all returns the first error of several requests.
func all(steps ...error) error {
	for at, err := range steps {
		if err != nil {
			return fmt.Errorf("step %d: %w", at+1, err)
		}
	}
	return nil
}

// done checks the status of a response. The client treats a missing object as deleted, without an error.
func done(want int) func(*http.Response, error) error {
	return func(answer *http.Response, err error) error {
		switch {
		case err != nil:
			return err
		case answer.StatusCode != want:
			return fmt.Errorf("status %d in place of %d", answer.StatusCode, want)
		}
		return nil
	}
}

// refused checks for an error in RabbitMQ's format.
func refused(status int, word string) func(*http.Response, error) error {
	return func(_ *http.Response, err error) error {
		var answer hole.ErrorResponse
		if !errors.As(err, &answer) {
			return fmt.Errorf("not refused as RabbitMQ does: %v", err)
		}
		if answer.StatusCode != status || !strings.Contains(answer.Reason, word) {
			return fmt.Errorf("refused with %d %q in place of %d %q", answer.StatusCode, answer.Reason, status, word)
		}
		return nil
	}
}

func must(truth bool, format string, words ...any) error {
	if truth {
		return nil
	}
	return fmt.Errorf(format, words...)
}

func node(client *hole.Client) error {
	overview, err := client.Overview()
	if err != nil {
		return err
	}
	who, err := client.Whoami()
	if err != nil {
		return err
	}
	nodes, err := client.ListNodes()
	if err != nil || len(nodes) != 1 {
		return fmt.Errorf("nodes %v %w", nodes, err)
	}
	_, one := client.GetNode(nodes[0].Name)
	protocols, err := client.EnabledProtocols()
	if err != nil {
		return err
	}
	ports, err := client.ProtocolPorts()
	if err != nil {
		return err
	}
	port, err := client.HealthCheckPortListener(uint(ports["amqp"]))
	if err != nil {
		return err
	}
	protocol, err := client.HealthCheckProtocolListener(hole.AMQP)
	if err != nil {
		return err
	}
	alarms, err := client.HealthCheckAlarms()
	if err != nil {
		return err
	}
	certificate, err := client.HealthCheckCertificateExpiration(1, hole.DAYS)
	if err != nil {
		return err
	}
	hosts, err := client.HealthCheckVirtualHosts()
	if err != nil {
		return err
	}
	flags, err := client.ListFeatureFlags()
	if err != nil {
		return err
	}
	name, err := client.GetClusterName()
	if err != nil {
		return err
	}
	deprecated, err := client.ListDeprecatedFeatures()
	if err != nil {
		return err
	}
	return all(
		one,
		must(overview.ManagementVersion == "4.2.0" && overview.Node == nodes[0].Name, "overview %+v", overview),
		must(who.Name == "root" && len(who.Tags) > 0, "whoami %+v", who),
		must(strings.Contains(strings.Join(protocols, " "), "amqp"), "protocols %v", protocols),
		must(port.Ok() && protocol.Ok() && alarms.Ok() && certificate.Ok() && hosts.Ok(), "health"),
		must(len(flags) > 0 && len(deprecated) > 0, "flags %v %v", flags, deprecated),
		done(http.StatusNoContent)(client.EnableFeatureFlag("stream_queue")),
		must(name.Name != "", "a cluster has a name"),
		refused(http.StatusBadRequest, "founded")(client.SetClusterName(hole.ClusterName{Name: "other"})),
	)
}

func declared(client *hole.Client) error {
	binding := hole.BindingInfo{
		Source: "hole.x", Destination: "hole/q", DestinationType: "queue", RoutingKey: "a.*",
		Arguments: map[string]any{"one": "two"},
	}
	if err := all(
		done(http.StatusCreated)(client.DeclareExchange("/", "hole.x", hole.ExchangeSettings{Type: "topic", Durable: true})),
		done(http.StatusCreated)(client.DeclareQueue("/", "hole/q", hole.QueueSettings{
			Type: "quorum", Durable: true, Arguments: map[string]any{"x-max-length": 100},
		})),
		done(http.StatusCreated)(client.DeclareBinding("/", binding)),
	); err != nil {
		return err
	}
	queue, err := client.GetQueue("/", "hole/q")
	if err != nil {
		return err
	}
	paged, err := client.PagedListQueuesWithParameters(url.Values{"page": {"1"}, "name": {"hole"}})
	if err != nil {
		return err
	}
	bindings, err := client.ListQueueBindingsBetween("/", "hole.x", "hole/q")
	if err != nil || len(bindings) != 1 {
		return fmt.Errorf("bindings %v %w", bindings, err)
	}
	source, err := client.ListExchangeBindingsWithSource("/", "hole.x")
	if err != nil {
		return err
	}
	exchange, err := client.GetExchange("/", "hole.x")
	if err != nil {
		return err
	}
	binding.PropertiesKey = bindings[0].PropertiesKey
	return all(
		must(queue.Type == "quorum" && queue.Durable && queue.Arguments["x-max-length"] == float64(100), "queue %+v", queue),
		must(paged.FilteredCount == 1 && paged.Items[0].Name == "hole/q", "page %+v", paged),
		must(len(source) == 1 && source[0].Arguments["one"] == "two", "bindings %+v", source),
		must(exchange.Type == "topic" && exchange.Durable, "exchange %+v", exchange),
		done(http.StatusNoContent)(client.PurgeQueue("/", "hole/q")),
		done(http.StatusNoContent)(client.DeleteBinding("/", binding)),
		done(http.StatusNoContent)(client.DeleteQueue("/", "hole/q", hole.QueueDeleteOptions{IfEmpty: true, IfUnused: true})),
		done(http.StatusNoContent)(client.DeleteExchange("/", "hole.x")),
		done(http.StatusNotFound)(client.DeleteExchange("/", "hole.x")),
	)
}

func permissions(client *hole.Client) error {
	everything := hole.Permissions{Configure: "^mine", Write: ".*", Read: ".*"}
	if err := all(
		done(http.StatusCreated)(client.PutVhost("hole", hole.VhostSettings{})),
		done(http.StatusCreated)(client.PutUser("holer", hole.UserSettings{Password: "reloh", Tags: hole.UserTags{"monitoring"}})),
		done(http.StatusCreated)(client.UpdatePermissionsIn("hole", "holer", everything)),
	); err != nil {
		return err
	}
	user, err := client.GetUser("holer")
	if err != nil {
		return err
	}
	granted, err := client.GetPermissionsIn("hole", "holer")
	if err != nil {
		return err
	}
	vhost, err := client.GetVhost("hole")
	if err != nil {
		return err
	}
	of, err := client.ListPermissionsOf("holer")
	if err != nil {
		return err
	}
	return all(
		must(len(user.Tags) == 1 && user.Tags[0] == "monitoring", "user %+v", user),
		must(granted.Configure == "^mine" && vhost.Name == "hole" && len(of) == 1, "permissions %+v %+v", granted, vhost),
		done(http.StatusNoContent)(client.ClearPermissionsIn("hole", "holer")),
		done(http.StatusNoContent)(client.DeleteUser("holer")),
		done(http.StatusNoContent)(client.DeleteVhost("hole")),
	)
}

func policies(client *hole.Client) error {
	policy := hole.Policy{
		Pattern: "^hole", ApplyTo: "queues", Priority: 3, Definition: hole.PolicyDefinition{"max-length": 5},
	}
	operator := hole.OperatorPolicy{
		Pattern: "^hole", ApplyTo: "queues", Priority: 1, Definition: hole.PolicyDefinition{"max-length": 9},
	}
	if err := all(
		done(http.StatusCreated)(client.PutPolicy("/", "hole.short", policy)),
		done(http.StatusCreated)(client.PutOperatorPolicy("/", "hole.shorter", operator)),
	); err != nil {
		return err
	}
	read, err := client.GetPolicy("/", "hole.short")
	if err != nil {
		return err
	}
	listed, err := client.ListOperatorPoliciesIn("/")
	if err != nil {
		return err
	}
	return all(
		must(read.Priority == 3 && read.Definition["max-length"] == float64(5), "policy %+v", read),
		must(len(listed) == 1 && listed[0].Name == "hole.shorter", "operator policies %+v", listed),
		done(http.StatusNoContent)(client.DeletePolicy("/", "hole.short")),
		done(http.StatusNoContent)(client.DeleteOperatorPolicy("/", "hole.shorter")),
	)
}

// absent: lists of unsupported objects are empty, changes by name are rejected, and clearing one finds no object.
func absent(client *hole.Client) error {
	ofHosts, err := client.GetAllVhostLimits()
	if err != nil {
		return err
	}
	ofUser, err := client.GetUserLimits("root")
	if err != nil {
		return err
	}
	topics, err := client.ListTopicPermissions()
	if err != nil {
		return err
	}
	parameters, err := client.ListRuntimeParameters()
	if err != nil {
		return err
	}
	upstreams, err := client.ListFederationUpstreamsIn("/")
	if err != nil {
		return err
	}
	shovels, err := client.ListShovels()
	if err != nil {
		return err
	}
	globals, err := client.ListGlobalParameters()
	if err != nil {
		return err
	}
	count := len(ofHosts) + len(ofUser) + len(topics) + len(parameters) + len(upstreams) + len(shovels)
	topic := hole.TopicPermissions{Exchange: "amq.topic", Write: "a", Read: "b"}
	return all(
		must(count == 0 && len(globals) == 2, "something is there"),
		refused(400, "topic permissions")(client.UpdateTopicPermissionsIn("/", "root", topic)),
		refused(400, "shovel")(client.DeclareShovel("/", "s", hole.ShovelDefinition{SourceQueue: "a", DestinationQueue: "b"})),
		refused(400, "federation-upstream")(client.PutFederationUpstream("/", "f", hole.FederationDefinition{Uri: hole.URISet{"amqp://"}})),
		refused(400, "")(client.PutGlobalParameter("p", map[string]any{"a": 1})),
		done(http.StatusNotFound)(client.ClearTopicPermissionsIn("/", "root")),
		done(http.StatusNotFound)(client.DeleteShovel("/", "s")),
		done(http.StatusNotFound)(client.DeleteGlobalParameter("p")),
	)
}

// limits: a limit is listed once it is set, and no longer after its deletion.
func limits(client *hole.Client) error {
	err := all(
		done(http.StatusNoContent)(client.PutVhostLimits("/", hole.VhostLimitsValues{"max-connections": 1000})),
		done(http.StatusNoContent)(client.PutUserLimits("root", hole.UserLimitsValues{"max-channels": 1000})),
	)
	if err != nil {
		return err
	}
	ofHost, err := client.GetVhostLimits("/")
	if err != nil {
		return err
	}
	ofUser, err := client.GetUserLimits("root")
	if err != nil {
		return err
	}
	return all(
		must(len(ofHost) == 1 && ofHost[0].Value["max-connections"] == 1000, "the virtual host's limit is not told"),
		must(len(ofUser) == 1 && ofUser[0].Value["max-channels"] == 1000, "the user's limit is not told"),
		done(http.StatusNoContent)(client.DeleteVhostLimits("/", hole.VhostLimits{"max-connections"})),
		done(http.StatusNoContent)(client.DeleteUserLimits("root", hole.UserLimits{"max-channels"})),
	)
}

func definitions(client *hole.Client) error {
	if err := done(http.StatusCreated)(client.DeclareQueue("/", "hole.kept", hole.QueueSettings{Durable: true})); err != nil {
		return err
	}
	before, err := client.ListDefinitions()
	if err != nil {
		return err
	}
	if err := done(http.StatusNoContent)(client.DeleteQueue("/", "hole.kept")); err != nil {
		return err
	}
	// Only the queue is missing: the other objects exist.
	before.Users = nil
	if _, err := client.UploadDefinitions(before); err != nil {
		return err
	}
	_, err = client.GetQueue("/", "hole.kept")
	return all(err, done(http.StatusNoContent)(client.DeleteQueue("/", "hole.kept")))
}

// live: the user `hole` has a connection with a channel that consumes `hole.live`.
func live(client *hole.Client) error {
	connections, err := client.ListConnectionsOfUser("hole")
	if err != nil || len(connections) != 1 {
		return fmt.Errorf("connections %+v %w", connections, err)
	}
	connection, err := client.GetConnection(connections[0].Name)
	if err != nil {
		return err
	}
	ofHost, err := client.ListVhostConnections("/")
	if err != nil {
		return err
	}
	channels, err := client.ListChannels()
	if err != nil {
		return err
	}
	consumers, err := client.ListConsumersIn("/")
	if err != nil {
		return err
	}
	every, err := client.ListConsumers()
	if err != nil || len(channels) != 1 || len(consumers) != 1 {
		return fmt.Errorf("channels %+v consumers %+v %w", channels, consumers, err)
	}
	channel, err := client.GetChannel(channels[0].Name)
	if err != nil {
		return err
	}
	consumer := consumers[0]
	isIt := func(other hole.ConnectionInfo) bool { return other.Name == connection.Name }
	return all(
		must(connection.Channels == 1 && connection.Vhost == "/" && connection.User == "hole", "connection %+v", connection),
		must(connection.ClientProperties["product"] != nil, "client properties %+v", connection.ClientProperties),
		must(slices.ContainsFunc(ofHost, isIt) && len(every) == 1, "%+v %+v", ofHost, every),
		must(channel.UsesPublisherConfirms && channel.PrefetchCount == 7 && channel.ConsumerCount == 1, "channel %+v", channel),
		must(channel.ConnectionDetails.Name == connection.Name, "channel %+v", channel),
		must(consumer.Queue.Name == "hole.live" && consumer.ConsumerTag == "hole.tag", "consumer %+v", consumer),
		must(consumer.AcknowledgementMode == hole.ManualAcknowledgement && consumer.PrefetchCount == 7, "consumer %+v", consumer),
		done(http.StatusNoContent)(client.CloseAllConnectionsOfUser("hole")),
	)
}
