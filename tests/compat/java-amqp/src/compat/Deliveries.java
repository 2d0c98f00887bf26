package compat;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.Envelope;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Collects the deliveries of a consumer; never acknowledges by itself. */
final class Deliveries extends DefaultConsumer {
    private final LinkedBlockingQueue<Delivery> deliveries = new LinkedBlockingQueue<>();
    volatile boolean cancelled;

    private Deliveries(Channel channel) {
        super(channel);
    }

    static Deliveries of(Channel channel, String queue) throws Exception {
        return of(channel, queue, false, Map.of());
    }

    static Deliveries of(
            Channel channel, String queue, boolean autoAck, Map<String, Object> arguments)
            throws Exception {
        Deliveries consumer = new Deliveries(channel);
        channel.basicConsume(queue, autoAck, arguments, consumer);
        return consumer;
    }

    @Override
    public void handleDelivery(
            String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
        deliveries.add(new Delivery(envelope, properties, body));
    }

    @Override
    public void handleCancel(String tag) {
        cancelled = true;
    }

    List<Delivery> take(int count) throws Exception {
        List<Delivery> taken = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            Delivery next = deliveries.poll(20, TimeUnit.SECONDS);
            Expect.holds(next != null, index + " of " + count + " deliveries within 20 s");
            taken.add(next);
        }
        return taken;
    }

    Delivery next() throws Exception {
        return take(1).get(0);
    }

    List<String> texts(int count) throws Exception {
        return take(count).stream().map(delivery -> Context.text(delivery.getBody())).toList();
    }

    void staysEmpty() throws Exception {
        Delivery next = deliveries.poll(300, TimeUnit.MILLISECONDS);
        Expect.holds(
                next == null,
                "nothing more should come: " + (next == null ? "" : Context.text(next.getBody())));
    }
}
