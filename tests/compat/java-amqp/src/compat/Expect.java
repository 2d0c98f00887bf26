package compat;

import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;

/** Checks of scenarios; a failure is an {@link AssertionError} with both values. */
final class Expect {
    private Expect() {}

    static void equal(Object actual, Object wanted, String what) {
        if (!Objects.deepEquals(actual, wanted)) {
            throw new AssertionError(what + ": wanted " + brief(wanted) + ", got " + brief(actual));
        }
    }

    static void holds(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    /** The action must be refused with the protocol's error that `type` stands for. */
    static void refused(Class<? extends Throwable> type, Callable<?> action, String what) {
        Object result;
        try {
            result = action.call();
        } catch (Throwable thrown) {
            Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
            if (!type.isInstance(cause)) {
                throw new AssertionError(
                        what + ": wanted " + type.getSimpleName() + ", got " + cause, cause);
            }
            return;
        }
        throw new AssertionError(
                what + ": wanted " + type.getSimpleName() + ", got " + brief(result));
    }

    static void eventually(Callable<Boolean> check, int seconds, String what) throws Exception {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        while (!check.call()) {
            holds(System.nanoTime() < end, "not within " + seconds + " s: " + what);
            Thread.sleep(100);
        }
    }

    private static String brief(Object value) {
        String text =
                value instanceof byte[] bytes ? Arrays.toString(bytes) : String.valueOf(value);
        return text.length() <= 160
                ? text
                : text.substring(0, 120) + "... (" + text.length() + " characters)";
    }
}
