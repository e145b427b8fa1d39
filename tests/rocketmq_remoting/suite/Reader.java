// A push consumer of a scenario, and what it got.

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Reads everything from the first message, and handles it, unless told otherwise. */
final class Reader {
  private static final long QUIET_MS = 1_500;

  /** Whether it could handle a message that it has seen {@code times} times before. */
  interface Handler {
    boolean handles(MessageExt message, int times) throws Exception;
  }

  /** One call of the listener for a message. */
  record Got(MessageExt message, String body, long atMs) {}

  final DefaultMQPushConsumer consumer;
  final List<Got> got = new CopyOnWriteArrayList<>();
  private final Scene scene;
  private final Map<String, Integer> times = new ConcurrentHashMap<>();
  private final Map<String, MessageSelector> wanted = new LinkedHashMap<>();
  private Handler handler = (message, before) -> true;
  private boolean isOrderly = false;
  private int delayLevel = 1;

  Reader(Scene scene, DefaultMQPushConsumer consumer) {
    this.scene = scene;
    this.consumer = consumer;
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.setSuspendCurrentQueueTimeMillis(100);
    consumer.setPersistConsumerOffsetInterval(500);
  }

  Reader topic(String topic, MessageSelector which) {
    wanted.put(topic, which);
    return this;
  }

  Reader tags(String expression) {
    return topic(scene.topic(), MessageSelector.byTag(expression));
  }

  Reader sql(String expression) {
    return topic(scene.topic(), MessageSelector.bySql(expression));
  }

  Reader orderly() {
    isOrderly = true;
    return this;
  }

  Reader broadcasting() {
    Scene.broadcast(consumer);
    return this;
  }

  /** After how long a failed message comes again: a delay level, or -1 for never. */
  Reader again(int level) {
    delayLevel = level;
    return this;
  }

  Reader handling(Handler with) {
    handler = with;
    return this;
  }

  Reader with(Consumer<DefaultMQPushConsumer> change) {
    change.accept(consumer);
    return this;
  }

  Reader start() throws Exception {
    if (wanted.isEmpty()) {
      tags("*");
    }
    for (Map.Entry<String, MessageSelector> each : wanted.entrySet()) {
      consumer.subscribe(each.getKey(), each.getValue());
    }
    if (isOrderly) {
      consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
          all(messages) ? ConsumeOrderlyStatus.SUCCESS
              : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
    } else {
      consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        context.setDelayLevelWhenNextConsume(delayLevel);
        return all(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
            : ConsumeConcurrentlyStatus.RECONSUME_LATER;
      });
    }
    consumer.start();
    scene.atEnd(consumer::shutdown);
    return this;
  }

  private boolean all(List<MessageExt> messages) {
    boolean handled = true;
    for (MessageExt message : messages) {
      String body = Scene.body(message);
      int before = times.merge(body, 1, Integer::sum) - 1;
      got.add(new Got(message, body, System.currentTimeMillis()));
      try {
        handled &= handler.handles(message, before);
      } catch (RuntimeException error) {
        throw error;
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
    }
    return handled;
  }

  void stop() {
    consumer.shutdown();
  }

  List<String> bodies() {
    return got.stream().map(Got::body).collect(Collectors.toCollection(ArrayList::new));
  }

  /** Waits for so many calls in all. */
  List<Got> gets(int count) throws Exception {
    Check.soon(() -> got.size() >= count, count + " messages; it got " + shown());
    return got;
  }

  /** Exactly these, in any order, and nothing more for a while. */
  void getsOnly(String... bodies) throws Exception {
    List<String> expected = new ArrayList<>(List.of(bodies));
    expected.sort(null);
    if (!expected.isEmpty()) {
      Check.soon(() -> got.size() >= expected.size(), expected + "; it got " + shown());
    }
    Thread.sleep(QUIET_MS);
    List<String> found = bodies();
    found.sort(null);
    Check.equal(expected, found);
  }

  /** The same in their order. */
  void getsInOrder(String... bodies) throws Exception {
    getsOnly(bodies);
    Check.equal(List.of(bodies), bodies());
  }

  /** What it got of the body, each time. */
  List<MessageExt> of(String body) {
    return got.stream().filter(each -> each.body().equals(body)).map(Got::message).toList();
  }

  private Object shown() {
    return new Object() {
      @Override public String toString() {
        List<String> found = bodies();
        return found.size() > 40 ? found.size() + " messages" : found.toString();
      }
    };
  }
}
