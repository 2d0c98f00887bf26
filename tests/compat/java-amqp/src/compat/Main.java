package compat;

/** Runs the scenarios whose name contains any of the arguments, or all of them. */
public final class Main {
    public static void main(String[] nameParts) {
        Suite suite = new Suite();
        Publishing.register(suite);
        Consuming.register(suite);
        Queues.register(suite);
        Recovery.register(suite);
        int failed = suite.run(nameParts);
        // A hung scenario leaves its threads behind; leave without waiting for them.
        Runtime.getRuntime().halt(failed == 0 ? 0 : 1);
    }
}
