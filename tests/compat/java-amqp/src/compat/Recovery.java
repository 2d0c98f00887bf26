package compat;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;

import java.nio.file.Files;
import java.nio.file.Path;
import java.net.ServerSocket;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** The client's automatic recovery after a cut connection or a killed server. */
final class Recovery {
    private Recovery() {}

    static void register(Suite suite) {
        suite.addSlow("recovery-of-a-cut-connection", Recovery::cutConnection);
        suite.addSlow("recovery-of-topology", Recovery::topology);
        if (System.getenv("SERVER") != null) {
            suite.addSlow("recovery-of-a-killed-server", Recovery::killedServer);
        }
    }

    /** Counts the recoveries of a connection. */
    private static AtomicInteger recoveries(Connection connection) {
        AtomicInteger count = new AtomicInteger();
        ((Recoverable) connection)
                .addRecoveryListener(
                        new RecoveryListener() {
                            @Override
                            public void handleRecovery(Recoverable recovered) {
                                count.incrementAndGet();
                            }

                            @Override
                            public void handleRecoveryStarted(Recoverable recovering) {}
                        });
        return count;
    }

    private static void cutConnection(Context context) throws Exception {
        try (Proxy proxy = new Proxy(context.host(), context.port())) {
            ConnectionFactory factory = context.factory();
            factory.setPort(proxy.port());
            Connection connection = context.connect(factory);
            AtomicInteger recovered = recoveries(connection);
            Channel channel = connection.createChannel();
            String queue = context.queue(channel, null);
            Deliveries consumer = Deliveries.of(channel, queue);
            Context.send(channel, queue, "a");
            Delivery first = consumer.next();
            for (int round = 1; round <= 3; round++) {
                proxy.cut();
                int wanted = round;
                Expect.eventually(() -> recovered.get() == wanted, 20, "recovery " + round);
                Delivery again = consumer.next();
                Expect.equal(Context.text(again.getBody()), "a", "what was not acknowledged");
                Expect.holds(again.getEnvelope().isRedeliver(), "redelivered");
            }
            // A tag of the lost channel: the client drops the acknowledgement.
            channel.basicAck(first.getEnvelope().getDeliveryTag(), false);
            Context.send(channel, queue, "b");
            Expect.equal(Context.text(consumer.next().getBody()), "b", "the consumer goes on");
            channel.basicAck(0, true);
        }
    }

    private static void topology(Context context) throws Exception {
        try (Proxy proxy = new Proxy(context.host(), context.port())) {
            ConnectionFactory factory = context.factory();
            factory.setPort(proxy.port());
            Connection connection = context.connect(factory);
            AtomicInteger recovered = recoveries(connection);
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            channel.basicQos(10);
            String exchange = context.unique("x");
            channel.exchangeDeclare(exchange, "topic", false, true, null);
            String queue = channel.queueDeclare().getQueue();
            channel.queueBind(queue, exchange, "a.*");
            Deliveries consumer = Deliveries.of(channel, queue, true, Map.of());
            proxy.cut();
            Expect.eventually(() -> recovered.get() == 1, 20, "recovery");
            // The queue has another name now, and the same bindings and consumer.
            channel.basicPublish(exchange, "a.b", null, Context.bytes("x"));
            Expect.holds(channel.waitForConfirms(10_000), "confirms go on");
            Expect.equal(Context.text(consumer.next().getBody()), "x", "message");
        }
    }

    private static void killedServer(Context context) throws Exception {
        String parent = System.getenv("SERVER_DATA");
        Path data =
                parent == null
                        ? Files.createTempDirectory("compat-amqp-")
                        : Files.createTempDirectory(Path.of(parent), "compat-amqp-");
        int port = freePort();
        int kafkaPort = freePort();
        Process server = startServer(data, port, kafkaPort);
        try {
            ConnectionFactory factory = context.factory();
            factory.setPort(port);
            Connection[] opened = new Connection[1];
            Expect.eventually(() -> (opened[0] = connected(factory)) != null, 60, "it answers");
            Connection connection = opened[0];
            AtomicInteger recovered = recoveries(connection);
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            Map<String, Object> arguments = Map.of("x-queue-type", "quorum");
            channel.queueDeclare("q", true, false, false, arguments);
            Context.send(channel, "q", "a", "b");
            channel.waitForConfirmsOrDie(10_000);
            kill(server);
            server = startServer(data, port, kafkaPort);
            Expect.eventually(() -> recovered.get() == 1, 60, "recovery");
            Deliveries consumer = Deliveries.of(channel, "q");
            Expect.equal(consumer.texts(2), List.of("a", "b"), "what was confirmed");
            Context.send(channel, "q", "c");
            Expect.equal(consumer.texts(1), List.of("c"), "what comes after");
            connection.abort(2000);
        } finally {
            kill(server);
        }
    }

    private static Connection connected(ConnectionFactory factory) {
        try {
            return factory.newConnection();
        } catch (Exception notYet) {
            return null;
        }
    }

    private static Process startServer(Path data, int port, int kafkaPort) throws Exception {
        String[] command = {
            System.getenv("SERVER"), data.toString(), "" + port, "" + kafkaPort
        };
        Path log = Path.of(data + ".log");
        return new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile()))
                .start();
    }

    private static void kill(Process server) throws Exception {
        server.descendants().forEach(ProcessHandle::destroyForcibly);
        server.destroyForcibly().waitFor(20, TimeUnit.SECONDS);
    }

    private static int freePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }
}
