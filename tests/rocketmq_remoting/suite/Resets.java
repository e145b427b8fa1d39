// How soon running consumers go on where they were set: releases from 5 on, as older ones wait
// for 10 s by themselves.

import java.util.HashSet;
import java.util.List;
import java.util.Set;

final class Resets {
  /** Less than that, on a busy machine. */
  private static final long AT_ONCE_MS = 5_000;

  private Resets() {}

  static void table(Suite suite) {
    suite.add("reset.back-at-once", "A reset back is followed at once", x -> {
      Reader reader = x.reader().start();
      x.send("1", "2", "3");
      reader.getsOnly("1", "2", "3");
      long begins = System.currentTimeMillis();
      x.admin().resetOffsetByTimestamp(x.topic(), x.group(), 1_000, true);
      Check.soon(() -> reader.got.size() == 6, "the messages again");
      isAtOnce(begins);
    });
    suite.add("reset.forward-at-once", "A reset forward is followed at once", x -> {
      Reader reader = slow(x).start();
      x.send(Scene.numbers(200));
      reader.gets(3);
      long begins = System.currentTimeMillis();
      x.admin().resetOffsetByTimestamp(x.topic(), x.group(), begins + 60_000, true);
      x.send("last");
      Check.soon(() -> reader.bodies().contains("last"), "what follows");
      isAtOnce(begins);
      Check.that(reader.got.size() < 100, "it skipped nothing");
    });
    suite.add("reset.late-commits", "What a member commits late does not undo a reset back", x -> {
      Reader first = slow(x).start();
      x.send(Scene.numbers(40));
      first.gets(20);
      int before = first.got.size();
      x.admin().resetOffsetByTimestamp(x.topic(), x.group(), 1_000, true);
      first.stop();  // it commits all that it has handled
      Set<String> again = new HashSet<>(first.bodies().subList(before, first.got.size()));
      Reader second = x.reader().start();
      Check.soon(() -> {
        again.addAll(second.bodies());
        return again.containsAll(List.of(Scene.numbers(40)));
      }, "all messages again");
    });
  }

  private static Reader slow(Scene x) {
    return x.reader()
        .with(consumer -> consumer.setConsumeThreadMax(1))
        .with(consumer -> consumer.setConsumeThreadMin(1))
        .handling((message, times) -> {
          Thread.sleep(50);
          return true;
        });
  }

  private static void isAtOnce(long begins) {
    long took = System.currentTimeMillis() - begins;
    Check.that(took < AT_ONCE_MS, "it took " + took + " ms");
  }
}
