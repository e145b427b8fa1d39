import java.util.Arrays;

/** Counts what is done once the warm-up is over. */
final class Meter {
    private static final long PATIENCE_NS = 60_000_000_000L;

    /** What is told about a part. */
    record Answer(int messages, double elapsedS, int sent, double p50Us, double p99Us) {}

    private final double seconds;
    private final long made = System.nanoTime();
    private long start = 0;
    volatile long end = Long.MAX_VALUE;
    private long last = 0;
    int sent = 0;
    private int messages = 0;
    private long[] took = new long[1 << 16];
    private int times = 0;
    private Exception failure = null;

    Meter(double seconds) {
        this.seconds = seconds;
    }

    synchronized void begin() {
        start = System.nanoTime() + (long) (seconds / 3 * 1e9);
        end = start + (long) (seconds * 1e9);
    }

    synchronized void acknowledged(long began, long now) {
        sent++;
        if (now >= start && now <= end) {
            messages++;
            if (times == took.length) {
                took = Arrays.copyOf(took, 2 * times);
            }
            took[times++] = now - began;
        }
    }

    /** Messages; the first of them begin the warm-up. */
    synchronized void got(int count) {
        if (count == 0) {
            return;
        }
        if (start == 0) {
            begin();
        }
        last = System.nanoTime();
        sent += count;
        if (last >= start && last <= end) {
            messages += count;
        }
    }

    synchronized void fail(Exception error) {
        failure = error;
    }

    /** Its time is over, or there is nothing left of {@code all}. */
    synchronized boolean isOver(int all) {
        return System.nanoTime() > end || sent >= all || failure != null;
    }

    void awaitEnd(int all) throws Exception {
        while (!isOver(all)) {
            if (start == 0 && System.nanoTime() - made > PATIENCE_NS) {
                throw new IllegalStateException("no message comes");
            }
            Thread.sleep(10);
        }
        if (failure != null) {
            throw failure;
        }
    }

    synchronized Answer answer() {
        long until = last == 0 ? end : Math.min(end, last);
        double elapsedS = start == 0 ? seconds : Math.max(1e-3, (until - start) / 1e9);
        long[] ordered = Arrays.copyOf(took, times);
        Arrays.sort(ordered);
        return new Answer(messages, elapsedS, sent, rank(ordered, 0.5), rank(ordered, 0.99));
    }

    private static double rank(long[] ordered, double share) {
        int last = ordered.length - 1;
        return last < 0 ? 0 : ordered[Math.min(last, (int) (share * ordered.length))] / 1e3;
    }
}
