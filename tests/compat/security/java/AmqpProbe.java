import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AuthenticationFailureException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultSaslConfig;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Map;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** RabbitMQ's client for Java. */
final class AmqpProbe {
    private static final char[] NO_PASSWORD = new char[0];

    static String outcome(Map<String, String> told) throws Exception {
        String mechanism = told.get("mechanism");
        ConnectionFactory factory = new ConnectionFactory();
        String[] address = told.get("address").split(":");
        factory.setHost(address[0]);
        factory.setPort(Integer.parseInt(address[1]));
        factory.setAutomaticRecoveryEnabled(false);
        factory.setConnectionTimeout(Probe.SOON_MS);
        if (told.get("tls").equals("true")) {
            factory.useSslProtocol(tls(told));
        }
        if (mechanism.equals("EXTERNAL")) {
            factory.setSaslConfig(DefaultSaslConfig.EXTERNAL);
        } else {
            factory.setUsername(told.get("user"));
            factory.setPassword(told.get(mechanism.equals("token") ? "token" : "password"));
        }
        Connection connection;
        try {
            connection = factory.newConnection();
        } catch (AuthenticationFailureException refused) {
            return "refused";
        } catch (IOException closed) {
            // An untrusted certificate ends the connection without an AMQP close.
            if (mechanism.equals("EXTERNAL")) {
                return "refused";
            }
            throw closed;
        }
        try {
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            channel.basicPublish("", told.get("topic"), null, new byte[] {'x'});
            channel.waitForConfirmsOrDie(Probe.SOON_MS);
            return "ok";
        } catch (IOException | ShutdownSignalException error) {
            Throwable why = error instanceof ShutdownSignalException ? error : error.getCause();
            if (why instanceof ShutdownSignalException signal
                    && signal.getReason() instanceof AMQP.Channel.Close close && close.getReplyCode() == 403) {
                return "denied";
            }
            throw error;
        }
    }

    private static SSLContext tls(Map<String, String> told) throws Exception {
        KeyStore believed = KeyStore.getInstance(KeyStore.getDefaultType());
        believed.load(null, null);
        believed.setCertificateEntry("server", certificate(told.get("ca")));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(believed);
        KeyManagerFactory keys = null;
        if (!told.get("cert").isEmpty()) {
            KeyStore own = KeyStore.getInstance(KeyStore.getDefaultType());
            own.load(null, null);
            Certificate[] chain = {certificate(told.get("cert"))};
            own.setKeyEntry("client", key(told.get("key")), NO_PASSWORD, chain);
            keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(own, NO_PASSWORD);
        }
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys == null ? null : keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    private static Certificate certificate(String path) throws Exception {
        byte[] pem = Files.readAllBytes(Path.of(path));
        return CertificateFactory.getInstance("X.509").generateCertificate(new ByteArrayInputStream(pem));
    }

    private static PrivateKey key(String path) throws Exception {
        String pem = Files.readString(Path.of(path)).replaceAll("-----[A-Z ]+-----", "");
        byte[] key = Base64.getMimeDecoder().decode(pem);
        return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(key));
    }

    private AmqpProbe() {}
}
