// Consumers whose queues the broker divides, by pull and by pop: releases from 5 on.

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.common.message.MessageRequestMode;

final class Pops {
  private static final int MANY = 40;

  private Pops() {}

  static void table(Suite suite) {
    suite.add("assigned.pull", "A consumer whose queues the broker divides gets all", x -> {
      Reader reader = led(x).start();
      x.send(Scene.numbers(MANY));
      reader.getsOnly(Scene.numbers(MANY));
    });
    suite.add("assigned.members", "Members whose queues the broker divides share", x -> {
      List<Reader> members = List.of(led(x).start(), led(x).start());
      Thread.sleep(3_000);
      x.send(Scene.numbers(MANY));
      shared(members);
    });
    suite.add("pop.all", "A group by pop gets every message once", x -> {
      pop(x);
      Reader reader = led(x).start();
      x.send(Scene.numbers(MANY));
      reader.getsOnly(Scene.numbers(MANY));
    });
    suite.add("pop.members", "Members by pop share the messages, more of them than queues", x -> {
      pop(x);
      List<Reader> members = new ArrayList<>();
      for (int number = 0; number < 3; number++) {
        members.add(led(x).start());
      }
      x.send(Scene.numbers(MANY));
      shared(members);
    }).queues(2);
    suite.add("pop.failed", "A message that fails comes again by pop", x -> {
      pop(x);
      Reader reader = led(x).handling((message, times) -> times >= 1).start();
      x.send("failing");
      reader.getsOnly("failing", "failing");
    });
    suite.add("pop.tags", "A group by pop chooses by tags", x -> {
      pop(x);
      Reader reader = led(x).tags("a").start();
      x.send(x.message("wanted", "a"));
      x.send(x.message("other", "b"));
      reader.getsOnly("wanted");
    });
    suite.add("pop.restarted", "A group by pop that starts again gets only the rest", x -> {
      pop(x);
      Reader first = led(x).start();
      x.send("1", "2", "3");
      first.getsOnly("1", "2", "3");
      first.stop();
      x.send("4");
      led(x).start().getsOnly("4");
    });
    moves(suite);
  }

  private static void moves(Suite suite) {
    suite.add("pop.from-pull", "A group goes on by pop where it was by pull", x -> {
      Reader reader = led(x).start();
      x.send(Scene.numbers(MANY));
      reader.getsOnly(Scene.numbers(MANY));
      Thread.sleep(1_000);
      pop(x);
      Thread.sleep(2_000);
      x.send("after");
      reader.gets(MANY + 1);
      Thread.sleep(1_500);
      Check.equal(MANY + 1, reader.got.size());
    });
    suite.add("pop.to-pull", "A group goes on by pull where it was by pop", x -> {
      pop(x);
      Reader reader = led(x).start();
      x.send(Scene.numbers(MANY));
      reader.getsOnly(Scene.numbers(MANY));
      Thread.sleep(1_000);
      mode(x, MessageRequestMode.PULL);
      Thread.sleep(2_000);
      x.send("after");
      reader.gets(MANY + 1);
      Thread.sleep(1_500);
      Check.equal(MANY + 1, reader.got.size());
    });
    suite.add("pop.killed", "Members by pop lose nothing when a broker is killed", x -> {
      pop(x);
      Reader reader = led(x).start();
      x.send(Scene.numbers(MANY));
      reader.gets(MANY / 2);
      x.kill("broker-a");
      String[] later = new String[MANY];
      for (int number = 0; number < MANY; number++) {
        String body = later[number] = "later-" + number;
        Check.succeeds(() -> x.send(x.message(body)));
      }
      Set<String> expected = new HashSet<>(List.of(Scene.numbers(MANY)));
      expected.addAll(List.of(later));
      long end = System.currentTimeMillis() + 90_000;
      while (!new HashSet<>(reader.bodies()).equals(expected)) {
        Check.that(System.currentTimeMillis() < end, "it got " + reader.bodies());
        Thread.sleep(100);
      }
    }).alone();
  }

  private static Reader led(Scene x) {
    return x.reader().with(consumer -> consumer.setClientRebalance(false));
  }

  private static void pop(Scene x) throws Exception {
    mode(x, MessageRequestMode.POP);
  }

  private static void mode(Scene x, MessageRequestMode mode) throws Exception {
    x.queues();
    for (var broker : x.admin().examineBrokerClusterInfo().getBrokerAddrTable().values()) {
      x.admin().setMessageRequestMode(
          broker.selectBrokerAddr(), x.topic(), x.group(), mode, 8, 5_000);
    }
  }

  private static void shared(List<Reader> members) throws Exception {
    Check.soon(() -> bodies(members).size() == MANY, "all messages");
    Thread.sleep(1_500);
    Check.equal(MANY, members.stream().mapToInt(each -> each.got.size()).sum());
  }

  private static Set<String> bodies(List<Reader> members) {
    Set<String> found = new HashSet<>();
    members.forEach(each -> found.addAll(each.bodies()));
    return found;
  }
}
