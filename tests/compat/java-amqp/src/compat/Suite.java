package compat;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Queue;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The registry of scenarios and the runner: one line each, many at a time.
 *
 * <p>Scenarios mostly wait (for recovery, for times to live), so they run concurrently and
 * each keeps to names of its own; the slow ones are started first.
 */
final class Suite {
    private static final int AT_ONCE = 8;
    private static final int SECONDS_MAX = 90;

    interface Body {
        void run(Context context) throws Exception;
    }

    private record Scenario(String name, Body body, boolean slow) {}

    private record Outcome(String name, double seconds, String failure) {}

    private final List<Scenario> scenarios = new ArrayList<>();

    void add(String name, Body body) {
        scenarios.add(new Scenario(name, body, false));
    }

    void addSlow(String name, Body body) {
        scenarios.add(new Scenario(name, body, true));
    }

    /** Runs the chosen scenarios and prints their outcomes; returns how many failed. */
    int run(String[] nameParts) {
        List<Scenario> chosen =
                scenarios.stream()
                        .filter(
                                s ->
                                        nameParts.length == 0
                                                || Arrays.stream(nameParts)
                                                        .anyMatch(s.name::contains))
                        .sorted(Comparator.comparing(s -> !s.slow))
                        .toList();
        String runId = UUID.randomUUID().toString().substring(0, 6);
        Queue<Scenario> waiting = new ConcurrentLinkedQueue<>(chosen);
        LinkedBlockingQueue<Outcome> outcomes = new LinkedBlockingQueue<>();
        for (int worker = 0; worker < AT_ONCE; worker++) {
            start(
                    () -> {
                        for (Scenario next = waiting.poll(); next != null; next = waiting.poll()) {
                            outcomes.add(attempt(next, runId));
                        }
                    });
        }
        int failed = 0;
        for (int done = 0; done < chosen.size(); done++) {
            Outcome outcome = take(outcomes);
            if (outcome.failure == null) {
                System.out.printf("ok %s %.1fs%n", outcome.name, outcome.seconds);
            } else {
                failed++;
                System.out.printf("FAIL %s %s%n", outcome.name, outcome.failure);
            }
        }
        System.out.printf("%d passed, %d failed%n", chosen.size() - failed, failed);
        return failed;
    }

    private static Outcome attempt(Scenario scenario, String runId) {
        long start = System.nanoTime();
        FutureTask<Void> task =
                new FutureTask<>(
                        () -> {
                            try (Context context = new Context(scenario.name, runId)) {
                                scenario.body.run(context);
                            }
                            return null;
                        });
        start(task);
        String failure;
        try {
            task.get(SECONDS_MAX, TimeUnit.SECONDS);
            failure = null;
        } catch (ExecutionException e) {
            failure = describe(e.getCause());
        } catch (TimeoutException e) {
            failure = "hangs: no end after " + SECONDS_MAX + " s";
        } catch (InterruptedException e) {
            throw new IllegalStateException("nobody interrupts the runner", e);
        }
        return new Outcome(scenario.name, (System.nanoTime() - start) / 1e9, failure);
    }

    private static String describe(Throwable failure) {
        String place =
                Arrays.stream(failure.getStackTrace())
                        .filter(
                                f ->
                                        f.getClassName().startsWith("compat.")
                                                && !f.getClassName()
                                                        .matches(
                                                                "compat\\.(Context|Expect|Suite).*"))
                        .findFirst()
                        .map(f -> " (" + f.getFileName() + ":" + f.getLineNumber() + ")")
                        .orElse("");
        String text =
                (failure instanceof AssertionError ? failure.getMessage() : failure.toString())
                        + place;
        return text.replace('\n', ' ');
    }

    static Thread start(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static <T> T take(LinkedBlockingQueue<T> queue) {
        try {
            return queue.take();
        } catch (InterruptedException e) {
            throw new IllegalStateException("nobody interrupts the runner", e);
        }
    }
}
