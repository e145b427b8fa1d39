// Consumers that pull: the lite one, and the classic one.

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

@SuppressWarnings("deprecation")
final class Pulls {
  private Pulls() {}

  static void table(Suite suite) {
    classic(suite);
    lite(suite);
  }

  private static void classic(Suite suite) {
    suite.add("pull.found", "A pull gives messages from its offset, as many as asked for", x -> {
      x.sendTo(x.queues().get(0), Scene.numbers(10));
      PullResult found = x.puller(x.group()).pull(x.queues().get(0), "*", 3, 4);
      Check.equal(PullStatus.FOUND, found.getPullStatus());
      Check.equal(List.of("3", "4", "5", "6"), Scene.bodies(found.getMsgFoundList()));
      Check.equal("7 0 10", found.getNextBeginOffset() + " " + found.getMinOffset() + " "
          + found.getMaxOffset());
    });
    suite.add("pull.nothing-new", "A pull at the end finds nothing new", x -> {
      x.sendTo(x.queues().get(0), "1", "2");
      PullResult found = x.puller(x.group()).pull(x.queues().get(0), "*", 2, 4);
      Check.equal(PullStatus.NO_NEW_MSG, found.getPullStatus());
      Check.equal(2L, found.getNextBeginOffset());
    });
    suite.add("pull.empty", "A pull of an empty queue finds nothing new", x -> {
      PullResult found = x.puller(x.group()).pull(x.queues().get(0), "*", 0, 4);
      Check.equal(PullStatus.NO_NEW_MSG, found.getPullStatus());
    });
    suite.add("pull.beyond", "A pull after the end is told where the end is", x -> {
      x.sendTo(x.queues().get(0), "1", "2");
      PullResult found = x.puller(x.group()).pull(x.queues().get(0), "*", 50, 4);
      Check.equal(PullStatus.OFFSET_ILLEGAL, found.getPullStatus());
      Check.equal(2L, found.getNextBeginOffset());
    });
    suite.add("pull.unmatched", "A pull that matches nothing says so, and where to go on", x -> {
      for (int number = 0; number < 5; number++) {
        x.producer().send(x.message("m", "other"), x.queues().get(0));
      }
      PullResult found = x.puller(x.group()).pull(x.queues().get(0), "wanted", 0, 4);
      Check.that(found.getPullStatus() != PullStatus.FOUND, found.toString());
      Check.equal(5L, found.getNextBeginOffset());
    });
    suite.add("pull.sql", "A pull may choose by SQL", x -> {
      for (String body : Scene.numbers(6)) {
        var message = x.message(body);
        message.putUserProperty("n", body);
        x.producer().send(message, x.queues().get(0));
      }
      // The client refuses before its first heart-beat.
      DefaultMQPullConsumer puller = x.puller(x.group());
      PullResult found = Check.succeeds(() ->
          puller.pull(x.queues().get(0), MessageSelector.bySql("n > 3"), 0, 32));
      Check.equal(List.of("4", "5"), Scene.bodies(found.getMsgFoundList()));
    });
    suite.add("pull.waits", "A pull that waits gets what comes", x -> {
      MessageQueue queue = x.queues().get(0);
      DefaultMQPullConsumer puller = x.puller(x.group());
      CompletableFuture<PullResult> pulled = CompletableFuture.supplyAsync(() -> {
        try {
          return puller.pullBlockIfNotFound(queue, "*", 0, 4);
        } catch (Exception error) {
          throw new IllegalStateException(error);
        }
      });
      Thread.sleep(500);
      long sent = System.currentTimeMillis();
      x.sendTo(queue, "one");
      PullResult found = pulled.get(20, TimeUnit.SECONDS);
      Check.equal(List.of("one"), Scene.bodies(found.getMsgFoundList()));
      Check.that(System.currentTimeMillis() - sent < 2_000, "late");
    });
    suite.add("pull.async", "A pull with a callback gets its messages", x -> {
      x.sendTo(x.queues().get(0), "1", "2");
      CompletableFuture<PullResult> pulled = new CompletableFuture<>();
      x.puller(x.group()).pull(x.queues().get(0), "*", 0, 4, new PullCallback() {
        @Override public void onSuccess(PullResult result) {
          pulled.complete(result);
        }

        @Override public void onException(Throwable error) {
          pulled.completeExceptionally(error);
        }
      });
      Check.equal(List.of("1", "2"),
          Scene.bodies(pulled.get(20, TimeUnit.SECONDS).getMsgFoundList()));
    });
    suite.add("pull.again", "A place may be pulled as often as wanted", x -> {
      x.sendTo(x.queues().get(0), "1", "2");
      for (int round = 0; round < 3; round++) {
        Check.equal(List.of("1", "2"), Scene.bodies(
            x.puller(x.group()).pull(x.queues().get(0), "*", 0, 4).getMsgFoundList()));
      }
    });
    suite.add("pull.queues", "A puller is told of the queues of all brokers", x ->
        Check.equal(4, x.puller(x.group()).fetchSubscribeMessageQueues(x.topic()).size()));
    suite.add("pull.absent-topic", "A pull of a topic that is not there is refused", x -> {
      MessageQueue absent = new MessageQueue(x.newTopic(), x.broker(), 0);
      Check.refused(() -> x.puller(x.group()).pull(absent, "*", 0, 4));
    });
  }

  private static void lite(Suite suite) {
    suite.add("lite.polls", "A lite consumer polls every message once", x -> {
      DefaultLitePullConsumer consumer = subscribed(x);
      x.send(Scene.numbers(30));
      sorted(Scene.numbers(30), polled(consumer, 30));
    });
    suite.add("lite.commits", "A lite consumer that starts again goes on where it committed", x -> {
      DefaultLitePullConsumer first = subscribed(x);
      x.send("1", "2", "3");
      sorted(new String[] {"1", "2", "3"}, polled(first, 3));
      first.commitSync();
      first.shutdown();
      x.send("4");
      sorted(new String[] {"4"}, polled(subscribed(x), 1));
    });
    suite.add("lite.by-itself", "A lite consumer commits by itself if it is to", x -> {
      DefaultLitePullConsumer first = x.lite(x.group());
      first.setAutoCommit(true);
      first.setAutoCommitIntervalMillis(1_000);
      first.subscribe(x.topic(), "*");
      first.start();
      x.send("1", "2", "3");
      polled(first, 3);
      Thread.sleep(1_200);
      first.poll(100);
      first.shutdown();
      x.send("4");
      sorted(new String[] {"4"}, polled(subscribed(x), 1));
    });
    suite.add("lite.members", "Two lite consumers of a group share the messages", x -> {
      DefaultLitePullConsumer first = subscribed(x);
      DefaultLitePullConsumer second = subscribed(x);
      Check.soon(() -> first.assignment().size() == 2 && second.assignment().size() == 2,
          "two queues each");
      x.send(Scene.numbers(40));
      List<String> got = new ArrayList<>();
      long end = System.currentTimeMillis() + 30_000;
      while (got.size() < 40 && System.currentTimeMillis() < end) {
        got.addAll(Scene.bodies(first.poll(100)));
        got.addAll(Scene.bodies(second.poll(100)));
      }
      sorted(Scene.numbers(40), got);
    });
    suite.add("lite.tags", "A lite consumer chooses by tags", x -> {
      DefaultLitePullConsumer consumer = x.lite(x.group());
      consumer.subscribe(x.topic(), "a");
      consumer.start();
      x.send(x.message("wanted", "a"));
      x.send(x.message("other", "b"));
      sorted(new String[] {"wanted"}, polled(consumer, 1));
    });
    suite.add("lite.sql", "A lite consumer chooses by SQL", x -> {
      DefaultLitePullConsumer consumer = x.lite(x.group());
      consumer.subscribe(x.topic(), MessageSelector.bySql("n = 1"));
      consumer.start();
      for (String body : Scene.numbers(3)) {
        var message = x.message(body);
        message.putUserProperty("n", body);
        x.send(message);
      }
      sorted(new String[] {"1"}, polled(consumer, 1));
    });
    suite.add("lite.assigned", "A lite consumer reads the queues that it is given", x -> {
      x.sendTo(x.queues().get(0), "mine");
      x.sendTo(x.queues().get(1), "other");
      DefaultLitePullConsumer consumer = assigned(x, x.queues().get(0));
      sorted(new String[] {"mine"}, polled(consumer, 1));
    });
    suite.add("lite.seek", "A lite consumer reads from where it is sent", x -> {
      MessageQueue queue = x.queues().get(0);
      x.sendTo(queue, Scene.numbers(10));
      DefaultLitePullConsumer consumer = assigned(x, queue);
      polled(consumer, 10);
      consumer.seek(queue, 7);
      sorted(new String[] {"7", "8", "9"}, polled(consumer, 3));
      consumer.seekToBegin(queue);
      sorted(Scene.numbers(10), polled(consumer, 10));
      consumer.seekToEnd(queue);
      x.sendTo(queue, "last");
      sorted(new String[] {"last"}, polled(consumer, 1));
    });
    suite.add("lite.time", "A lite consumer finds the offset of a time", x -> {
      MessageQueue queue = x.queues().get(0);
      x.sendTo(queue, "1");
      Thread.sleep(50);
      long middle = System.currentTimeMillis();
      Thread.sleep(50);
      x.sendTo(queue, "2");
      Check.equal(1L, assigned(x, queue).offsetForTimestamp(queue, middle));
    });
    suite.add("lite.paused", "A lite consumer gives nothing of a queue that is paused", x -> {
      MessageQueue queue = x.queues().get(0);
      DefaultLitePullConsumer consumer = assigned(x, queue);
      x.sendTo(queue, "1");
      polled(consumer, 1);
      consumer.pause(List.of(queue));
      // The pull that waits takes one more.
      x.sendTo(queue, "2");
      Check.equal(List.of("2"), Scene.bodies(consumer.poll(5_000)));
      x.sendTo(queue, "3");
      Check.equal(List.of(), Scene.bodies(consumer.poll(1_000)));
      consumer.resume(List.of(queue));
      sorted(new String[] {"3"}, polled(consumer, 1));
    });
    suite.add("lite.queues", "A lite consumer is told of the queues of all brokers", x -> {
      Collection<MessageQueue> found = subscribed(x).fetchMessageQueues(x.topic());
      Check.equal(4, found.size());
    });
    suite.add("lite.committed", "A lite consumer is told what it committed", x -> {
      MessageQueue queue = x.queues().get(0);
      x.sendTo(queue, "1", "2", "3");
      DefaultLitePullConsumer consumer = assigned(x, queue);
      polled(consumer, 3);
      consumer.commitSync();
      Check.soon(() -> consumer.committed(queue) == 3, "the offset");
    });
    suite.add("lite.quiet", "A poll of nothing ends in its time", x -> {
      DefaultLitePullConsumer consumer = subscribed(x);
      long begun = System.currentTimeMillis();
      Check.equal(List.of(), Scene.bodies(consumer.poll(700)));
      long tookMs = System.currentTimeMillis() - begun;
      Check.that(600 <= tookMs && tookMs < 3_000, "after " + tookMs + " ms");
    });
  }

  private static DefaultLitePullConsumer subscribed(Scene x) throws Exception {
    DefaultLitePullConsumer consumer = x.lite(x.group());
    consumer.setAutoCommit(false);
    consumer.subscribe(x.topic(), "*");
    consumer.start();
    return consumer;
  }

  private static DefaultLitePullConsumer assigned(Scene x, MessageQueue queue) throws Exception {
    DefaultLitePullConsumer consumer = x.lite(x.group());
    consumer.setAutoCommit(false);
    consumer.start();
    consumer.assign(List.of(queue));
    return consumer;
  }

  /** So many, or what comes in half a minute; and what one more poll gives. */
  private static List<String> polled(DefaultLitePullConsumer consumer, int count) {
    List<String> bodies = new ArrayList<>();
    long end = System.currentTimeMillis() + 30_000;
    while (bodies.size() < count && System.currentTimeMillis() < end) {
      List<MessageExt> found = consumer.poll(200);
      bodies.addAll(Scene.bodies(found));
    }
    bodies.addAll(Scene.bodies(consumer.poll(300)));
    return bodies;
  }

  private static void sorted(String[] expected, List<String> found) {
    List<String> wanted = new ArrayList<>(List.of(expected));
    List<String> got = new ArrayList<>(found);
    wanted.sort(null);
    got.sort(null);
    Check.equal(wanted, got);
  }
}
