// Requests that another client answers.

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;

final class Requests {
  private static final int ENOUGH_MS = 15_000;

  private Requests() {}

  static void table(Suite suite) {
    suite.add("request.answered", "A request is answered by a consumer of its topic", x -> {
      answering(x);
      Asked asked = new Asked();
      x.producer().request(x.message("question"), asked, ENOUGH_MS);
      Check.equal("answer to question", asked.answer());
    });
    suite.add("request.queue", "A request to a queue is answered", x -> {
      answering(x);
      Asked asked = new Asked();
      x.producer().request(x.message("question"), x.queues().get(1), asked, ENOUGH_MS);
      Check.equal("answer to question", asked.answer());
    });
    suite.add("request.selector", "A request to the queue that a selector chooses is answered", x -> {
      answering(x);
      Asked asked = new Asked();
      x.producer().request(x.message("question"), new SelectMessageQueueByHash(), "key", asked,
          ENOUGH_MS);
      Check.equal("answer to question", asked.answer());
    });
    suite.add("request.many", "Requests at once get each its own answer", x -> {
      answering(x);
      Map<String, Asked> all = new LinkedHashMap<>();
      for (String number : Scene.numbers(20)) {
        Asked asked = new Asked();
        all.put(number, asked);
        x.producer().request(x.message(number), asked, ENOUGH_MS);
      }
      for (Map.Entry<String, Asked> each : all.entrySet()) {
        Check.equal("answer to " + each.getKey(), each.getValue().answer());
      }
    });
    suite.add("request.two-askers", "Two clients that ask get each its own answers", x -> {
      answering(x);
      DefaultMQProducer other = x.newProducer(x.group("others"));
      Asked first = new Asked();
      Asked second = new Asked();
      x.producer().request(x.message("first"), first, ENOUGH_MS);
      other.request(x.message("second"), second, ENOUGH_MS);
      Check.equal("answer to first", first.answer());
      Check.equal("answer to second", second.answer());
    });
    suite.add("request.unanswered", "A request that nobody answers fails in its time", x -> {
      long begun = System.currentTimeMillis();
      Asked asked = new Asked();
      x.producer().request(x.message("question"), asked, 1_500);
      Exception error = Check.refused(asked::answer);
      Check.that(error.getCause() instanceof RequestTimeoutException, error.toString());
      Check.that(System.currentTimeMillis() - begun < 10_000, "late");
    });
  }

  /** Waits for an answer. Without a callback, the client of 5.3.3 does not wait at all. */
  private static final class Asked implements RequestCallback {
    private final CompletableFuture<String> answered = new CompletableFuture<>();

    @Override public void onSuccess(Message message) {
      answered.complete(Scene.body(message));
    }

    @Override public void onException(Throwable error) {
      answered.completeExceptionally(error);
    }

    String answer() throws Exception {
      return answered.get(25, TimeUnit.SECONDS);
    }
  }

  private static void answering(Scene x) throws Exception {
    DefaultMQProducer producer = x.newProducer(x.group("answering"));
    x.reader().handling((message, times) -> {
      Message answer = MessageUtil.createReplyMessage(
          message, ("answer to " + Scene.body(message)).getBytes());
      x.stored(producer.send(answer, 5_000));
      return true;
    }).start();
  }
}
