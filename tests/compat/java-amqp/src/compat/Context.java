package compat;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.GetResponse;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Resources of one scenario: connections that are closed after it, and unique names. */
final class Context implements AutoCloseable {
    private final String name;
    private final String runId;
    private final List<Connection> connections = new ArrayList<>();
    private final List<String> queues = new ArrayList<>();
    private final List<String> exchanges = new ArrayList<>();
    private final String address = System.getenv("AMQP");

    Context(String name, String runId) {
        this.name = name;
        this.runId = runId;
    }

    String host() {
        return address.substring(0, address.lastIndexOf(':'));
    }

    int port() {
        return Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
    }

    String unique(String suffix) {
        return "java-" + name + "-" + runId + "-" + suffix;
    }

    ConnectionFactory factory() {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(host());
        factory.setPort(port());
        factory.setNetworkRecoveryInterval(200);
        return factory;
    }

    Connection connect() throws Exception {
        return connect(factory());
    }

    Connection connect(ConnectionFactory factory) throws Exception {
        Connection connection = factory.newConnection(unique("connection"));
        synchronized (connections) {
            connections.add(connection);
        }
        return connection;
    }

    Channel channel() throws Exception {
        return connect().createChannel();
    }

    Channel confirming() throws Exception {
        Channel channel = channel();
        channel.confirmSelect();
        return channel;
    }

    String queue(Channel channel, Map<String, Object> arguments) throws Exception {
        return queue(channel, "q", arguments);
    }

    String queue(Channel channel, String suffix, Map<String, Object> arguments) throws Exception {
        String queue = unique(suffix);
        queues.add(queue);
        channel.queueDeclare(queue, true, false, false, arguments);
        return queue;
    }

    String exchange(Channel channel, String type, Map<String, Object> arguments) throws Exception {
        String exchange = unique(type);
        exchanges.add(exchange);
        channel.exchangeDeclare(exchange, type, true, false, arguments);
        return exchange;
    }

    static void send(Channel channel, String queue, Object... bodies) throws Exception {
        for (Object body : bodies) {
            channel.basicPublish("", queue, persistent(), bytes(body));
        }
    }

    static AMQP.BasicProperties persistent() {
        return new AMQP.BasicProperties.Builder().deliveryMode(2).build();
    }

    static byte[] bytes(Object body) {
        return String.valueOf(body).getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] body) {
        return new String(body, StandardCharsets.UTF_8);
    }

    /** The next message; it must arrive within the time. */
    static GetResponse get(Channel channel, String queue, boolean autoAck) throws Exception {
        GetResponse[] got = new GetResponse[1];
        Expect.eventually(
                () -> (got[0] = channel.basicGet(queue, autoAck)) != null,
                10,
                "a message in " + queue);
        return got[0];
    }

    static List<String> getAll(Channel channel, String queue, int count) throws Exception {
        List<String> bodies = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            bodies.add(text(get(channel, queue, true).getBody()));
        }
        Expect.equal(channel.basicGet(queue, true), null, "what is left in " + queue);
        return bodies;
    }

    @Override
    public void close() throws Exception {
        Channel channel = factory().newConnection("cleaner").createChannel();
        for (String queue : queues) {
            channel.queueDelete(queue);
        }
        for (String exchange : exchanges) {
            channel.exchangeDelete(exchange);
        }
        synchronized (connections) {
            connections.add(channel.getConnection());
            connections.forEach(connection -> connection.abort(5000));
        }
    }
}
