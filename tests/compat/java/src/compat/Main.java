package compat;

/** Runs the scenarios whose name contains any of the arguments, or all of them. */
public final class Main {
    public static void main(String[] nameParts) {
        Suite suite = new Suite();
        Topics.register(suite);
        Configs.register(suite);
        Producing.register(suite);
        Consuming.register(suite);
        Commits.register(suite);
        GroupAdministration.register(suite);
        ClassicGroups.register(suite);
        ConsumerGroups.register(suite);
        Storage.register(suite);
        Sharing.register(suite);
        ShareGroups.register(suite);
        Streams.register(suite);
        int failed = suite.run(System.getenv("BOOTSTRAP"), nameParts);
        // A hung scenario leaves its threads behind; leave without waiting for them.
        Runtime.getRuntime().halt(failed == 0 ? 0 : 1);
    }
}
