import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.SslAuthenticationException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.StringSerializer;

/** kafka-clients. */
final class KafkaProbe {
    private static final String TOKEN = "probe.token";

    static String outcome(Map<String, String> told) throws Exception {
        Properties config = config(told);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            var record = new ProducerRecord<String, String>(told.get("topic"), "x");
            try {
                producer.send(record).get(2L * Probe.SOON_MS, TimeUnit.MILLISECONDS);
                return "ok";
            } catch (ExecutionException error) {
                Throwable cause = error.getCause();
                if (cause instanceof TopicAuthorizationException) {
                    return "denied";
                }
                if (cause instanceof SaslAuthenticationException || cause instanceof SslAuthenticationException) {
                    return "refused";
                }
                // The client sends no certificate of an authority that the node does not list. It is rejected as
                // anonymous, and retries until its time is over.
                if (told.get("mechanism").equals("certificate") && cause instanceof TimeoutException) {
                    return "refused";
                }
                throw error;
            } finally {
                producer.close(java.time.Duration.ZERO);
            }
        }
    }

    private static Properties config(Map<String, String> told) throws IOException {
        Properties config = new Properties();
        String mechanism = told.get("mechanism");
        boolean tls = told.get("tls").equals("true");
        boolean byCertificate = mechanism.equals("certificate");
        config.put("bootstrap.servers", told.get("address"));
        config.put("key.serializer", StringSerializer.class.getName());
        config.put("value.serializer", StringSerializer.class.getName());
        // Only the permission to write to the topic is tested.
        config.put("enable.idempotence", "false");
        config.put("max.block.ms", String.valueOf(Probe.SOON_MS));
        config.put("request.timeout.ms", String.valueOf(Probe.SOON_MS / 2));
        config.put("delivery.timeout.ms", String.valueOf(Probe.SOON_MS));
        config.put("security.protocol", byCertificate ? "SSL" : tls ? "SASL_SSL" : "SASL_PLAINTEXT");
        if (tls) {
            config.put("ssl.truststore.type", "PEM");
            config.put("ssl.truststore.certificates", Files.readString(Path.of(told.get("ca"))));
            config.put("ssl.endpoint.identification.algorithm", "");
        }
        if (byCertificate) {
            config.put("ssl.keystore.type", "PEM");
            config.put("ssl.keystore.certificate.chain", Files.readString(Path.of(told.get("cert"))));
            config.put("ssl.keystore.key", Files.readString(Path.of(told.get("key"))));
            return config;
        }
        config.put("sasl.mechanism", mechanism);
        String login = "org.apache.kafka.common.security." + switch (mechanism) {
            case "PLAIN" -> "plain.PlainLoginModule";
            case "OAUTHBEARER" -> "oauthbearer.OAuthBearerLoginModule";
            default -> "scram.ScramLoginModule";
        };
        if (mechanism.equals("OAUTHBEARER")) {
            config.put("sasl.login.callback.handler.class", Tokens.class.getName());
            config.put("sasl.jaas.config", login + " required;");
            System.setProperty(TOKEN, told.get("token"));
        } else {
            String who = " required username=\"" + told.get("user") + "\" password=\"" + told.get("password") + "\";";
            config.put("sasl.jaas.config", login + who);
        }
        return config;
    }

    /** Returns the token that the probe was given. */
    public static final class Tokens implements AuthenticateCallbackHandler {
        @Override
        public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {}

        @Override
        public void close() {}

        @Override
        public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
            for (Callback callback : callbacks) {
                if (callback instanceof OAuthBearerTokenCallback asked) {
                    asked.token(new Token(System.getProperty(TOKEN)));
                } else if (!callback.getClass().getSimpleName().equals("SaslExtensionsCallback")) {
                    throw new UnsupportedCallbackException(callback);
                }
            }
        }
    }

    private record Token(String value) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return System.currentTimeMillis() + 600_000;
        }

        @Override
        public String principalName() {
            return "whoever the token names";
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }

    private KafkaProbe() {}
}
