// Messages that arrive at a time, and messages that are recalled: releases from 5.3.2 on.

import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

final class Recalls {
  private Recalls() {}

  private interface Due {
    void set(Message message, long afterMs);
  }

  static void table(Suite suite) {
    times(suite);
    recalls(suite);
  }

  private static void times(Suite suite) {
    timed(suite, "seconds", (message, afterMs) -> message.setDelayTimeSec(afterMs / 1_000));
    timed(suite, "milliseconds", Message::setDelayTimeMs);
    timed(suite, "moment", (message, afterMs) ->
        message.setDeliverTimeMs(System.currentTimeMillis() + afterMs));
    suite.add("timed.past", "A message for a time that is over arrives at once", x -> {
      Reader reader = x.reader().start();
      Message message = x.message("late");
      message.setDeliverTimeMs(System.currentTimeMillis() - 5_000);
      x.send(message);
      reader.getsOnly("late");
    });
    suite.add("timed.too-late", "A message for a time after the limit is refused", x -> {
      Message message = x.message("never");
      message.setDelayTimeSec(400L * 24 * 3_600);
      Check.refused(() -> x.producer().send(message));
    });
    suite.add("timed.order", "What is due earlier arrives earlier", x -> {
      Reader reader = x.reader().start();
      for (int afterS : new int[] {6, 3, 1}) {
        Message message = x.message("after " + afterS);
        message.setDelayTimeSec(afterS);
        x.send(message);
      }
      reader.getsInOrder("after 1", "after 3", "after 6");
    });
  }

  private static void timed(Suite suite, String name, Due due) {
    suite.add("timed." + name, "A message that is due by its " + name + " arrives then", x -> {
      Reader reader = x.reader().start();
      Message message = x.message("later");
      long sent = System.currentTimeMillis();
      due.set(message, 3_000);
      x.send(message);
      long tookMs = reader.gets(1).get(0).atMs() - sent;
      // Apache's timer has steps of a second.
      Check.that(2_000 <= tookMs && tookMs < 6_500, "after " + tookMs + " ms");
      reader.getsOnly("later");
    });
  }

  private static void recalls(Suite suite) {
    suite.add("recall.recalled", "A recalled message does not arrive, and others do", x -> {
      Reader reader = x.reader().start();
      SendResult sent = later(x, "recalled", 4);
      later(x, "other", 4);
      String id = x.producer().recallMessage(x.topic(), sent.getRecallHandle());
      Check.equal(sent.getMsgId(), id);
      reader.getsOnly("other");
    });
    suite.add("recall.arrived", "A message that has arrived cannot be recalled", x -> {
      Reader reader = x.reader().start();
      SendResult sent = later(x, "soon", 1);
      reader.getsOnly("soon");
      Check.refused(() -> x.producer().recallMessage(x.topic(), sent.getRecallHandle()));
    });
    suite.add("recall.wrong-handle", "A handle that is none is refused", x -> {
      SendResult sent = later(x, "later", 3);
      Check.refused(() -> x.producer().recallMessage(x.topic(), "no handle"));
      String changed = "x" + sent.getRecallHandle().substring(1);
      Check.refused(() -> x.producer().recallMessage(x.topic(), changed));
      x.reader().start().getsOnly("later");
    });
    suite.add("recall.other-topic", "A handle of another topic is refused", x -> {
      SendResult sent = later(x, "later", 3);
      Check.refused(() -> x.producer().recallMessage(x.topic(1), sent.getRecallHandle()));
      x.reader().start().getsOnly("later");
    }).topics(2);
    suite.add("recall.plain", "A message that is not for later has no handle", x -> {
      SendResult sent = x.send("now").get(0);
      Check.equal(null, sent.getRecallHandle());
    });
  }

  private static SendResult later(Scene x, String body, int afterS) throws Exception {
    Message message = x.message(body);
    message.setDelayTimeSec(afterS);
    return x.send(message);
  }
}
