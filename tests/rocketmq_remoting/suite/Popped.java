// Polls by the client that Apache's own tests and its proxy use: releases from 5 on.

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.impl.ClientRemotingProcessor;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.constant.ConsumeInitMode;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

final class Popped {
  private static final int SHORT_MS = 3_000;
  private static final int LONG_MS = 60_000;
  private static final int QUEUES = 8;

  private final Scene scene;
  private final MQClientAPIExt client;
  private final MessageQueue queue;
  private final String address;

  private Popped(Scene x) throws Exception {
    scene = x;
    client = new MQClientAPIExt(
        new ClientConfig(), new NettyClientConfig(), new ClientRemotingProcessor(null), null);
    client.start();
    x.atEnd(client::shutdown);
    queue = x.queues().get(0);
    address = x.admin().examineBrokerClusterInfo().getBrokerAddrTable()
        .get(queue.getBrokerName()).selectBrokerAddr();
  }

  static void table(Suite suite) {
    suite.add("popped.acknowledged", "What is popped and acknowledged does not come again", x -> {
      Popped pops = new Popped(x);
      pops.send("1", "2");
      List<MessageExt> got = pops.all(2, SHORT_MS);
      for (MessageExt each : got) {
        Check.equal(AckStatus.OK, pops.acknowledge(each));
      }
      Thread.sleep(2 * SHORT_MS);
      Check.equal(List.of(), pops.poll(SHORT_MS, 1_000));
    });
    suite.add("popped.again", "What is not acknowledged comes again, and is counted", x -> {
      Popped pops = new Popped(x);
      pops.send("1");
      Check.equal(0, pops.all(1, SHORT_MS).get(0).getReconsumeTimes());
      long start = System.currentTimeMillis();
      MessageExt again = pops.all(1, SHORT_MS).get(0);
      Check.that(System.currentTimeMillis() - start >= SHORT_MS - 1_000, "too early");
      Check.equal(1, again.getReconsumeTimes());
      Check.equal(x.topic(), again.getTopic());
      Check.equal("1", Scene.body(again));
    });
    suite.add("popped.many-times", "Each time that a message comes again is counted", x -> {
      Popped pops = new Popped(x);
      pops.send("1");
      for (int times = 0; times < 4; times++) {
        Check.equal(times, pops.all(1, 1_000).get(0).getReconsumeTimes());
      }
    });
    suite.add("popped.later", "A message comes again after its changed time, not before", x -> {
      Popped pops = new Popped(x);
      pops.send("1");
      long start = System.currentTimeMillis();
      pops.change(pops.all(1, 1_000).get(0), 6_000);
      pops.all(1, LONG_MS);
      long after = System.currentTimeMillis() - start;
      Check.that(after >= 5_000, "after " + after + " ms");
    });
    suite.add("popped.sooner", "A message comes again at once if its time is made short", x -> {
      Popped pops = new Popped(x);
      pops.send("1");
      pops.change(pops.all(1, LONG_MS).get(0), 1_000);
      pops.all(1, LONG_MS);
    });
    suite.add("popped.reset", "A tool sets one queue's offset, and what follows is popped again", x -> {
      Popped pops = new Popped(x);
      pops.send("1", "2", "3");
      pops.all(3, LONG_MS);
      x.admin().resetOffsetByQueueId(
          pops.address, x.group(), x.topic(), pops.queue.getQueueId(), 1);
      Check.equal(List.of("2", "3"), Scene.bodies(pops.all(2, LONG_MS)));
    });
    suite.add("popped.changed", "The handle of a changed time acknowledges", x -> {
      Popped pops = new Popped(x);
      pops.send("1");
      String handle = pops.change(pops.all(1, LONG_MS).get(0), SHORT_MS);
      Check.equal(AckStatus.OK, pops.acknowledge(handle));
      Thread.sleep(2 * SHORT_MS);
      Check.equal(List.of(), pops.poll(SHORT_MS, 1_000));
    });
    suite.add("popped.batch", "A batch of acknowledgements finishes all its messages", x -> {
      Popped pops = new Popped(x);
      pops.send(Scene.numbers(20));
      List<String> handles = pops.all(20, SHORT_MS).stream().map(Popped::handle).toList();
      Check.equal(AckStatus.OK, pops.acknowledgeAll(handles));
      Thread.sleep(2 * SHORT_MS);
      Check.equal(List.of(), pops.poll(SHORT_MS, 1_000));
    });
    suite.add("popped.mixed-batch", "A batch may have messages that came again", x -> {
      Popped pops = new Popped(x);
      pops.send(Scene.numbers(5));
      pops.all(5, SHORT_MS);
      Thread.sleep(2 * SHORT_MS);
      pops.send(Scene.numbers(10));
      List<String> handles = pops.all(15, 10_000).stream().map(Popped::handle).toList();
      Check.equal(AckStatus.OK, pops.acknowledgeAll(handles));
      Thread.sleep(11_000);
      Check.equal(List.of(), pops.poll(SHORT_MS, 1_000));
    });
    suite.add("popped.part", "Of a poll's messages, only those not acknowledged come again", x -> {
      Popped pops = new Popped(x);
      pops.send(Scene.numbers(6));
      for (MessageExt each : pops.all(6, SHORT_MS)) {
        if (Integer.parseInt(Scene.body(each)) % 2 == 0) {
          Check.equal(AckStatus.OK, pops.acknowledge(each));
        }
      }
      Check.equal(List.of("1", "3", "5"), sorted(pops.all(3, LONG_MS)));
    });
    suite.add("popped.any-queue", "A poll without a queue gets messages of all queues", x -> {
      Popped pops = new Popped(x);
      List<MessageQueue> all = pops.queues();
      for (MessageQueue each : all) {
        x.sendTo(each, String.valueOf(each.getQueueId()));
      }
      List<MessageExt> got = pops.anyQueue().all(all.size(), LONG_MS);
      Check.equal(all.size(), (int) got.stream().map(MessageExt::getQueueId).distinct().count());
      for (MessageExt each : got) {
        Check.equal(AckStatus.OK, pops.acknowledge(each));
      }
    }).queues(QUEUES);
    suite.add("popped.queue", "A poll of one queue gets its messages only", x -> {
      Popped pops = new Popped(x);
      x.sendTo(pops.queues().get(1), "other");
      pops.send("mine");
      Check.equal(List.of("mine"), Scene.bodies(pops.all(1, LONG_MS)));
      Check.equal(List.of(), pops.poll(SHORT_MS, 1_000));
    }).queues(QUEUES);
    suite.add("popped.tags", "A poll gets what its tags name", x -> {
      Popped pops = new Popped(x);
      x.producer().send(x.message("a", "a"), pops.queue);
      x.producer().send(x.message("b", "b"), pops.queue);
      x.producer().send(x.message("c", "a"), pops.queue);
      List<MessageExt> got = new ArrayList<>();
      Check.soon(() -> {
        got.addAll(pops.poll(pops.queue.getQueueId(), LONG_MS, 1_000, 32, false, "a"));
        return got.size() == 2;
      }, "two messages");
      Check.equal(List.of("a", "c"), Scene.bodies(got));
    });
    suite.add("popped.groups", "Each group gets every message", x -> {
      Popped pops = new Popped(x);
      pops.send("1", "2");
      for (String group : List.of(x.group("one"), x.group("two"))) {
        List<MessageExt> got = new ArrayList<>();
        Check.soon(() -> {
          got.addAll(pops.poll(group, pops.queue.getQueueId(), LONG_MS, 1_000, 32, false, "*"));
          return got.size() == 2;
        }, "two messages");
      }
    });
    suite.add("popped.waits", "A poll that waits gets a message within 100 ms", x -> {
      Popped pops = new Popped(x);
      pops.poll(LONG_MS, 0);
      List<Long> late = new ArrayList<>();
      for (int round = 0; round < 5; round++) {
        CompletableFuture<PopResult> waiting = pops.polling(LONG_MS, 10_000);
        Thread.sleep(500);
        long sent = System.nanoTime();
        pops.send(String.valueOf(round));
        Check.equal(PopStatus.FOUND, waiting.get(10, TimeUnit.SECONDS).getPopStatus());
        late.add((System.nanoTime() - sent) / 1_000_000);
      }
      late.sort(Comparator.naturalOrder());
      Check.that(late.get(2) < 100, "after " + late + " ms, with the send");
    });
    suite.add("popped.ends", "A poll that waits in vain ends in its time", x -> {
      Popped pops = new Popped(x);
      long start = System.currentTimeMillis();
      PopResult result = pops.polling(LONG_MS, 2_000).get(10, TimeUnit.SECONDS);
      Check.equal(PopStatus.POLLING_NOT_FOUND, result.getPopStatus());
      long took = System.currentTimeMillis() - start;
      Check.that(took >= 1_900 && took < 4_000, "after " + took + " ms");
    });
    suite.add("popped.notified", "A notification says that there is a message, and takes none", x -> {
      Popped pops = new Popped(x);
      Check.equal(false, pops.notified(500));
      CompletableFuture<Boolean> waiting = pops.notification(10_000);
      Thread.sleep(500);
      pops.send("1");
      Check.equal(true, waiting.get(10, TimeUnit.SECONDS));
      Check.equal(List.of("1"), Scene.bodies(pops.all(1, LONG_MS)));
      Check.equal(false, pops.notified(500));
    });
    ordered(suite);
    suite.add("popped.dead", "After its last delivery a popped message is a dead letter", x -> {
      Popped pops = new Popped(x);
      SubscriptionGroupConfig config = new SubscriptionGroupConfig();
      config.setGroupName(x.group());
      config.setRetryMaxTimes(1);
      x.admin().createAndUpdateSubscriptionGroupConfig(pops.address, config);
      pops.send("poison");
      pops.all(1, 1_000);
      pops.all(1, 1_000);
      Check.equal(List.of(), pops.poll(1_000, 3_000));
      Reader letters = Retries.letters(x);
      Check.soon(() -> letters.bodies().equals(List.of("poison")), "the dead letter");
    });
    suite.add("popped.killed", "What was popped comes again, what was acknowledged not, though "
        + "the broker is killed", x -> {
      Popped pops = new Popped(x);
      for (String body : Scene.numbers(10)) {
        Check.succeeds(() -> x.sendTo(pops.queue, body));
      }
      List<MessageExt> got = pops.all(10, 20_000);
      for (MessageExt each : got.subList(0, 5)) {
        Check.equal(AckStatus.OK, pops.acknowledge(each));
      }
      Thread.sleep(3_000);
      x.kill(pops.queue.getBrokerName());
      List<String> left = got.subList(5, 10).stream().map(Scene::body).sorted().toList();
      Check.equal(left, sorted(pops.all(5, LONG_MS)));
      Check.equal(List.of(), pops.poll(LONG_MS, 2_000));
    }).alone();
  }

  private static void ordered(Suite suite) {
    suite.add("popped.in-order", "In order, a poll gets the next when the last is finished", x -> {
      Popped pops = new Popped(x);
      pops.send("1", "2", "3");
      for (String body : List.of("1", "2", "3")) {
        List<MessageExt> got = pops.ordered(1, LONG_MS, 5_000);
        Check.equal(List.of(body), Scene.bodies(got));
        Check.equal(List.of(), pops.ordered(1, LONG_MS, 300));
        Check.equal(AckStatus.OK, pops.acknowledge(got.get(0)));
      }
    });
    suite.add("popped.run", "In order, a poll gets several, and nothing follows before their end",
        x -> {
      Popped pops = new Popped(x);
      pops.send("1", "2", "3");
      List<MessageExt> got = pops.ordered(2, LONG_MS, 5_000);
      Check.equal(List.of("1", "2"), Scene.bodies(got));
      Check.equal(AckStatus.OK, pops.acknowledge(got.get(0)));
      Check.equal(List.of(), pops.ordered(2, LONG_MS, 300));
      Check.equal(AckStatus.OK, pops.acknowledge(got.get(1)));
      Check.equal(List.of("3"), Scene.bodies(pops.ordered(2, LONG_MS, 5_000)));
    });
    suite.add("popped.run-again", "In order, all that is not finished comes again in order", x -> {
      Popped pops = new Popped(x);
      pops.send("1", "2", "3");
      List<MessageExt> got = pops.ordered(32, SHORT_MS, 5_000);
      Check.equal(List.of("1", "2", "3"), Scene.bodies(got));
      List<MessageExt> again = new ArrayList<>();
      Check.soon(() -> again.addAll(pops.ordered(32, LONG_MS, 1_000)), "again");
      Check.equal(List.of("1", "2", "3"), Scene.bodies(again));
      Check.equal(1, again.get(0).getReconsumeTimes());
    });
    suite.add("popped.ordered-batch", "In order, a batch of acknowledgements lets the next come",
        x -> {
      Popped pops = new Popped(x);
      pops.send(Scene.numbers(10));
      List<MessageExt> got = pops.ordered(32, LONG_MS, 5_000);
      Check.equal(10, got.size());
      Check.equal(AckStatus.OK, pops.acknowledgeAll(got.stream().map(Popped::handle).toList()));
      pops.send("next");
      Check.equal(List.of("next"), Scene.bodies(pops.ordered(32, LONG_MS, 5_000)));
    });
  }

  // ------------------------------------------------------------------------------ asking

  private int asked = -2;

  private Popped anyQueue() {
    asked = -1;
    return this;
  }

  private List<MessageQueue> queues() throws Exception {
    return scene.queues().stream()
        .filter(each -> each.getBrokerName().equals(queue.getBrokerName())).toList();
  }

  private void send(String... bodies) throws Exception {
    scene.sendTo(queue, bodies);
  }

  /** Polls until it has as many. */
  private List<MessageExt> all(int count, int invisibleMs) throws Exception {
    List<MessageExt> got = new ArrayList<>();
    Check.soon(() -> {
      got.addAll(poll(invisibleMs, 1_000));
      return got.size() >= count;
    }, count + " messages");
    Check.equal(count, got.size());
    return got;
  }

  private List<MessageExt> poll(int invisibleMs, int waitMs) throws Exception {
    int queueId = asked == -2 ? queue.getQueueId() : asked;
    return poll(queueId, invisibleMs, waitMs, 32, false, "*");
  }

  private List<MessageExt> ordered(int count, int invisibleMs, int waitMs) throws Exception {
    return poll(queue.getQueueId(), invisibleMs, waitMs, count, true, "*");
  }

  private List<MessageExt> poll(
      int queueId, int invisibleMs, int waitMs, int count, boolean inOrder, String tags)
      throws Exception {
    return poll(scene.group(), queueId, invisibleMs, waitMs, count, inOrder, tags);
  }

  private List<MessageExt> poll(
      String group, int queueId, int invisibleMs, int waitMs, int count, boolean inOrder,
      String tags) throws Exception {
    PopResult result = Check.succeeds(() ->
        polling(group, queueId, invisibleMs, waitMs, count, inOrder, tags)
            .get(waitMs + 20_000, TimeUnit.MILLISECONDS));
    return result.getPopStatus() == PopStatus.FOUND ? result.getMsgFoundList() : List.of();
  }

  private CompletableFuture<PopResult> polling(int invisibleMs, int waitMs) {
    return polling(scene.group(), queue.getQueueId(), invisibleMs, waitMs, 32, false, "*");
  }

  private CompletableFuture<PopResult> polling(
      String group, int queueId, int invisibleMs, int waitMs, int count, boolean inOrder,
      String tags) {
    PopMessageRequestHeader header = new PopMessageRequestHeader();
    header.setConsumerGroup(group);
    header.setTopic(queue.getTopic());
    header.setQueueId(queueId);
    header.setMaxMsgNums(count);
    header.setInvisibleTime(invisibleMs);
    header.setInitMode(ConsumeInitMode.MIN);
    header.setExpType(ExpressionType.TAG);
    header.setExp(tags);
    header.setOrder(inOrder);
    header.setBornTime(System.currentTimeMillis());
    header.setPollTime(waitMs);
    return client.popMessageAsync(address, queue.getBrokerName(), header, waitMs + 15_000L);
  }

  private boolean notified(int waitMs) throws Exception {
    return notification(waitMs).get(20, TimeUnit.SECONDS);
  }

  private CompletableFuture<Boolean> notification(int waitMs) {
    NotificationRequestHeader header = new NotificationRequestHeader();
    header.setConsumerGroup(scene.group());
    header.setTopic(queue.getTopic());
    header.setQueueId(queue.getQueueId());
    header.setPollTime(waitMs);
    header.setBornTime(System.currentTimeMillis());
    return client.notification(address, header, waitMs + 15_000L);
  }

  private static String handle(MessageExt message) {
    return message.getProperty(MessageConst.PROPERTY_POP_CK);
  }

  private static List<String> sorted(List<MessageExt> messages) {
    return messages.stream().map(Scene::body).sorted().toList();
  }

  private AckStatus acknowledge(MessageExt message) throws Exception {
    return acknowledge(handle(message));
  }

  private AckStatus acknowledge(String handle) throws Exception {
    String[] parts = ExtraInfoUtil.split(handle);
    AckMessageRequestHeader header = new AckMessageRequestHeader();
    header.setTopic(ExtraInfoUtil.getRealTopic(parts, queue.getTopic(), scene.group()));
    header.setConsumerGroup(scene.group());
    header.setQueueId(ExtraInfoUtil.getQueueId(parts));
    header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
    header.setExtraInfo(handle);
    return client.ackMessageAsync(address, header, 10_000).get(20, TimeUnit.SECONDS).getStatus();
  }

  private AckStatus acknowledgeAll(List<String> handles) throws Exception {
    return client.batchAckMessageAsync(address, queue.getTopic(), scene.group(), handles, 10_000)
        .get(20, TimeUnit.SECONDS).getStatus();
  }

  /** The new handle. */
  private String change(MessageExt message, int invisibleMs) throws Exception {
    String[] parts = ExtraInfoUtil.split(handle(message));
    ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
    header.setTopic(ExtraInfoUtil.getRealTopic(parts, queue.getTopic(), scene.group()));
    header.setConsumerGroup(scene.group());
    header.setQueueId(ExtraInfoUtil.getQueueId(parts));
    header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
    header.setExtraInfo(handle(message));
    header.setInvisibleTime((long) invisibleMs);
    AckResult changed = client
        .changeInvisibleTimeAsync(address, queue.getBrokerName(), header, 10_000)
        .get(20, TimeUnit.SECONDS);
    Check.equal(AckStatus.OK, changed.getStatus());
    return changed.getExtraInfo();
  }
}
