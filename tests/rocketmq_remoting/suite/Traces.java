// What clients say of what they do, and messages that go on as they came.

import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

final class Traces {
  private static final String USUAL_TOPIC = "RMQ_SYS_TRACE_TOPIC";

  private Traces() {}

  static void table(Suite suite) {
    suite.add("trace.sent", "A producer that traces says what it has sent", x ->
        traced(x, x.topic(1), List.of("Pub"))).topics(2);
    suite.add("trace.consumed", "A consumer that traces says what it has handled", x ->
        traced(x, x.topic(1), List.of("Pub", "SubBefore", "SubAfter"))).topics(2);
    suite.add("trace.usual-topic", "Traces go to the usual topic, which begins with them", x ->
        traced(x, USUAL_TOPIC, List.of("Pub", "SubBefore", "SubAfter"))).on("creating");
    suite.add("forward.pushed", "A message that was received can be sent on as it is", x -> {
      Reader first = x.reader().handling((message, times) -> times > 0).start();
      Message sent = x.message("1", "a");
      sent.putUserProperty("mine", "x");
      x.send(sent);
      MessageExt received = first.gets(2).get(1).message();
      received.setTopic(x.topic(1));
      Reader second = x.reader(x.group("second"))
          .topic(x.topic(1), MessageSelector.byTag("a")).start();
      x.send(received);
      Check.equal("x", second.gets(1).get(0).message().getUserProperty("mine"));
    }).topics(2);
  }

  /** Sends a message and handles it, and waits for what is said of it. */
  private static void traced(Scene x, String topic, List<String> kinds) throws Exception {
    DefaultMQProducer producer =
        x.set(new DefaultMQProducer(x.group("traced"), true, topic));
    producer.start();
    x.atEnd(producer::shutdown);
    if (topic.equals(USUAL_TOPIC)) {
      producer.send(new Message(x.newTopic(), "first".getBytes()));
    }
    String of = topic.equals(USUAL_TOPIC) ? x.newTopic() : x.topic();
    if (kinds.size() > 1) {
      DefaultMQPushConsumer consumer =
          x.set(new DefaultMQPushConsumer(x.group("traced"), true, topic));
      new Reader(x, consumer).topic(of, MessageSelector.byTag("*")).start();
    }
    String id = producer.send(new Message(of, "1".getBytes())).getMsgId();
    Reader traces = x.reader(x.group("traces")).topic(topic, MessageSelector.byTag("*")).start();
    Check.soon(() -> said(traces, id).containsAll(kinds), "traces " + kinds + " of " + id);
  }

  /** The kinds of what was said of a message. */
  private static Set<String> said(Reader traces, String id) {
    return traces.bodies().stream()
        .flatMap(body -> List.of(body.split("\u0002")).stream())
        .filter(each -> each.contains(id) || each.startsWith("SubAfter"))
        .map(each -> each.split("\u0001")[0])
        .collect(Collectors.toSet());
  }
}
