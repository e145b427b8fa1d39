// Tags and SQL.

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.message.Message;

final class Filters {
  private Filters() {}

  static void table(Suite suite) {
    tags(suite);
    sql(suite);
  }

  private static void tags(Suite suite) {
    Map<String, String[]> expressions = new LinkedHashMap<>();
    expressions.put("a", new String[] {"a0", "a3"});
    expressions.put("a || c", new String[] {"a0", "a3", "c2", "c5"});
    expressions.put("a||b||c", new String[] {"a0", "b1", "c2", "a3", "b4", "c5"});
    expressions.put("*", new String[] {"a0", "b1", "c2", "a3", "b4", "c5", "none"});
    expressions.put("nothing", new String[] {});
    int number = 0;
    for (Map.Entry<String, String[]> each : expressions.entrySet()) {
      suite.add("tags." + ++number, "The tags `" + each.getKey() + "` choose their messages", x -> {
        Reader reader = x.reader().tags(each.getKey()).start();
        letters(x);
        reader.getsOnly(each.getValue());
      });
    }
    suite.add("tags.null", "No expression chooses every message", x -> {
      letters(x);
      x.reader().tags(null).start()
          .getsOnly("a0", "b1", "c2", "a3", "b4", "c5", "none");
    });
    suite.add("tags.equal-hashes", "Tags with equal hashes are told apart", x -> {
      Reader reader = x.reader().tags("Aa").start();
      x.send(x.message("wanted", "Aa"));
      x.send(x.message("other", "BB"));
      reader.getsOnly("wanted");
    });
    suite.add("tags.case", "Tags are compared letter by letter", x -> {
      Reader reader = x.reader().tags("Tag").start();
      for (String tag : new String[] {"Tag", "tag", "Tag ", "Tags"}) {
        x.send(x.message("<" + tag + ">", tag));
      }
      // The client compares, and trims what is sent.
      Check.soon(() -> reader.bodies().contains("<Tag>"), "the wanted one");
      Thread.sleep(1_000);
      Check.that(!reader.bodies().contains("<tag>") && !reader.bodies().contains("<Tags>"),
          reader.bodies().toString());
    });
    suite.add("tags.two-groups", "Two groups with other tags get other messages", x -> {
      Reader first = x.reader(x.group("a")).tags("a").start();
      Reader second = x.reader(x.group("b")).tags("b").start();
      letters(x);
      first.getsOnly("a0", "a3");
      second.getsOnly("b1", "b4");
    });
    suite.add("tags.passed", "A group passes messages that it does not want", x -> {
      Reader reader = x.reader().tags("a").start();
      for (int count = 0; count < 50; count++) {
        x.send(x.message("other " + count, "b"));
      }
      x.send(x.message("wanted", "a"));
      reader.getsOnly("wanted");
      reader.stop();
      Reader next = x.reader().tags("*").start();
      x.send(x.message("after", "b"));
      Check.soon(() -> next.bodies().contains("after"), "the next message");
      Check.that(next.got.size() < 30, "it got passed messages again: " + next.got.size());
    });
    suite.add("tags.rare", "A rare tag is found among many messages", x -> {
      for (int round = 0; round < 5; round++) {
        java.util.List<Message> batch = new java.util.ArrayList<>();
        for (int count = 0; count < 1_000; count++) {
          batch.add(x.message("hay " + count, "hay"));
        }
        x.producer().send(batch);
      }
      x.send(x.message("needle", "needle"));
      x.reader().tags("needle").start().getsOnly("needle");
    });
    suite.add("tags.changed", "A consumer that starts again may want other tags", x -> {
      Reader first = x.reader().tags("a").start();
      x.send(x.message("a1", "a"));
      first.getsOnly("a1");
      first.stop();
      Reader second = x.reader().tags("b").start();
      x.send(x.message("b1", "b"));
      x.send(x.message("a2", "a"));
      second.getsOnly("b1");
    });
    suite.add("tags.ordered", "An ordered consumer gets its tags in order", x -> {
      for (int count = 0; count < 20; count++) {
        x.producer().send(x.message(String.valueOf(count), count % 2 == 0 ? "even" : "odd"),
            x.queues().get(0));
      }
      x.reader().tags("even").orderly().start()
          .getsInOrder("0", "2", "4", "6", "8", "10", "12", "14", "16", "18");
    });
  }

  private static void letters(Scene x) throws Exception {
    int number = 0;
    for (String tag : "a b c a b c".split(" ")) {
      x.send(x.message(tag + number++, tag));
    }
    x.send(x.message("none"));
  }

  private static void sql(Suite suite) {
    Map<String, String[]> expressions = new LinkedHashMap<>();
    expressions.put("n > 3", new String[] {"4", "5"});
    expressions.put("n >= 1 AND n < 3", new String[] {"1", "2"});
    expressions.put("n = 0 OR color = 'red'", new String[] {"0", "2", "4"});
    expressions.put("NOT (n BETWEEN 1 AND 4)", new String[] {"0", "5"});
    expressions.put("color IN ('red', 'none')", new String[] {"0", "2", "4"});
    expressions.put("n IS NOT NULL AND color <> 'red'", new String[] {"1", "3", "5"});
    expressions.put("n IS NULL", new String[] {"bare"});
    expressions.put("TAGS = 'x' AND n < 2", new String[] {"0", "1"});
    expressions.put("flag = TRUE", new String[] {"3"});
    int number = 0;
    for (Map.Entry<String, String[]> each : expressions.entrySet()) {
      suite.add("sql." + ++number, "The expression `" + each.getKey() + "` chooses messages", x -> {
        Reader reader = x.reader().sql(each.getKey()).start();
        coloured(x);
        reader.getsOnly(each.getValue());
      });
    }
    suite.add("sql.illegal", "An expression that is none is refused when a consumer starts", x -> {
      x.send("one");
      Reader reader = x.reader().sql("n > > 3");
      Check.refused(reader::start);
    });
    suite.add("sql.two-groups", "A group by SQL and one by tags do not disturb", x -> {
      Reader first = x.reader(x.group("sql")).sql("n < 2").start();
      Reader second = x.reader(x.group("tags")).tags("x").start();
      coloured(x);
      first.getsOnly("0", "1");
      second.getsOnly("0", "1", "2", "3", "4", "5");
    });
    suite.add("sql.broadcast", "SQL holds for each member of a broadcast", x -> {
      Reader first = x.reader().broadcasting().sql("n = 1").start();
      Reader second = x.reader().broadcasting().sql("n = 1").start();
      coloured(x);
      first.getsOnly("1");
      second.getsOnly("1");
    });
    suite.add("sql.retried", "A failed message comes again through its SQL", x -> {
      Reader reader = x.reader().topic(x.topic(), MessageSelector.bySql("n = 1"))
          .handling((message, times) -> times > 0).start();
      coloured(x);
      reader.getsOnly("1", "1");
    });
  }

  /** 0 to 5 with number, colour and tag, and one without properties. */
  private static void coloured(Scene x) throws Exception {
    for (int number = 0; number < 6; number++) {
      Message message = x.message(String.valueOf(number), "x");
      message.putUserProperty("n", String.valueOf(number));
      message.putUserProperty("color", number % 2 == 0 ? "red" : "blue");
      message.putUserProperty("flag", String.valueOf(number == 3));
      x.send(message);
    }
    x.send(x.message("bare"));
  }
}
