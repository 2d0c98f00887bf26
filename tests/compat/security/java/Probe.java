import java.util.HashMap;
import java.util.Map;

/**
 * Logs in with the given settings and sends one message. Prints ok, refused (log-in failed) or denied (no
 * permission).
 *
 * <pre>Probe client=kafka address=... topic=... mechanism=... ...</pre>
 */
final class Probe {
    static final int SOON_MS = 10_000;

    public static void main(String[] words) {
        Map<String, String> told = new HashMap<>();
        for (String word : words) {
            int at = word.indexOf('=');
            told.put(word.substring(0, at), word.substring(at + 1));
        }
        int status = 0;
        try {
            boolean isKafka = told.get("client").equals("kafka");
            System.out.println(isKafka ? KafkaProbe.outcome(told) : AmqpProbe.outcome(told));
        } catch (Exception error) {
            Throwable last = error;
            while (last.getCause() != null) {
                last = last.getCause();
            }
            System.out.println((error + ": " + last).replace('\n', ' '));
            status = 1;
        }
        // Exits even if threads of the clients still run.
        Runtime.getRuntime().halt(status);
    }

    private Probe() {}
}
