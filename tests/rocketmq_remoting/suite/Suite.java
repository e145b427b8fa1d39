// Runs scenarios with one release of Apache's remoting clients: see README.md.

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * {@code Suite list}, or {@code Suite run ADDRESS AT_ONCE NAME...}. Says lines of fields between
 * tabs: {@code scenario NAME CLUSTER ALONE QUEUES TOPICS PROMISE}; {@code passed NAME SECONDS} or
 * {@code failed NAME SECONDS WHY}; {@code ask WHAT BROKER}, which is answered by a line.
 */
public final class Suite {
  /** A release that lacks what a table needs has no such class. */
  private static final String[] TABLES = {
    "Sending", "Asking", "Requests", "Later", "Recalls", "Transactions", "Groups", "Filters",
    "Order", "Retries", "Places", "Resets", "Pulls", "Pops", "Popped", "Tools",
    "Deletions", "Traces",
    "Restarts"
  };
  private static final long PATIENCE_S = 150;
  private static final PrintStream ANSWERS = System.out;

  /** What a scenario does. */
  interface Body {
    void run(Scene scene) throws Exception;
  }

  /** One promise and how it is tried. Queues are those of each topic, on all brokers together. */
  static final class Scenario {
    final String name;
    final String promise;
    final Body body;
    int topics = 1;
    int queues = 4;
    boolean isAlone = false;
    String cluster = "plain";

    Scenario(String name, String promise, Body body) {
      this.name = name;
      this.promise = promise;
      this.body = body;
    }

    Scenario topics(int count) {
      topics = count;
      return this;
    }

    Scenario queues(int count) {
      queues = count;
      return this;
    }

    /** While nothing else runs: it stops what others use. */
    Scenario alone() {
      isAlone = true;
      return this;
    }

    /** Another cluster than the plain one. */
    Scenario on(String named) {
      cluster = named;
      return this;
    }

    String topic(int number) {
      return "T-" + name.replace('.', '-') + (number == 0 ? "" : "-" + number);
    }
  }

  private final Map<String, Scenario> scenarios = new LinkedHashMap<>();
  private final LinkedBlockingQueue<String> answers = new LinkedBlockingQueue<>();
  String address = "";

  Scenario add(String name, String promise, Body body) {
    Scenario scenario = new Scenario(name, promise, body);
    if (scenarios.put(name, scenario) != null) {
      throw new IllegalArgumentException("there are two scenarios " + name);
    }
    return scenario;
  }

  public static void main(String[] arguments) throws Exception {
    // What libraries log to standard output is no answer.
    System.setOut(System.err);
    Suite suite = new Suite();
    for (String table : TABLES) {
      try {
        Class.forName(table).getDeclaredMethod("table", Suite.class).invoke(null, suite);
      } catch (ClassNotFoundException absent) {
        continue;
      }
    }
    if (arguments[0].equals("list")) {
      suite.list();
    } else {
      suite.address = arguments[1];
      suite.run(Integer.parseInt(arguments[2]), Arrays.stream(arguments).skip(3).toList());
    }
    System.exit(0);
  }

  static synchronized void say(Object... fields) {
    ANSWERS.println(Arrays.stream(fields)
        .map(field -> String.valueOf(field).replaceAll("\\s+", " "))
        .collect(Collectors.joining("\t")));
    ANSWERS.flush();
  }

  private void list() {
    for (Scenario each : scenarios.values()) {
      String topics = IntStream.range(0, each.topics).mapToObj(each::topic)
          .collect(Collectors.joining(","));
      say("scenario", each.name, each.cluster, each.isAlone, each.queues, topics, each.promise);
    }
  }

  private void run(int atOnce, List<String> names) throws Exception {
    Thread reader = new Thread(this::readAnswers, "answers");
    reader.setDaemon(true);
    reader.start();
    List<Scenario> beside = new ArrayList<>();
    List<Scenario> alone = new ArrayList<>();
    for (String name : names) {
      Scenario scenario = scenarios.get(name);
      (scenario.isAlone ? alone : beside).add(scenario);
    }
    all(beside, atOnce);
    all(alone, 1);
  }

  private void all(List<Scenario> wanted, int atOnce) throws Exception {
    ExecutorService workers = Executors.newFixedThreadPool(atOnce);
    for (Scenario each : wanted) {
      workers.submit(() -> {
        attempt(each);
        return null;
      });
    }
    workers.shutdown();
    workers.awaitTermination(1, TimeUnit.DAYS);
  }

  private void attempt(Scenario scenario) throws Exception {
    long begun = System.nanoTime();
    Throwable[] failure = new Throwable[1];
    Thread thread = new Thread(() -> {
      Scene scene = new Scene(this, scenario);
      try {
        if (scenario.isAlone) {
          // The one before may have stopped a broker.
          Check.soon(() -> scene.queues().size() == scenario.queues, "all brokers");
        }
        scenario.body.run(scene);
      } catch (Throwable error) {
        failure[0] = error;
      } finally {
        scene.close();
      }
    }, scenario.name);
    thread.setDaemon(true);
    thread.start();
    thread.join(TimeUnit.SECONDS.toMillis(PATIENCE_S));
    if (thread.isAlive()) {
      failure[0] = new IllegalStateException("it does not end: " + where(thread.getStackTrace()));
    }
    String tookS = String.format("%.1f", (System.nanoTime() - begun) / 1e9);
    if (failure[0] == null) {
      say("passed", scenario.name, tookS);
    } else {
      String at = where(failure[0].getStackTrace());
      say("failed", scenario.name, tookS, failure[0] + (at.isEmpty() ? "" : " at " + at));
    }
  }

  /** The line of a scenario. */
  private static String where(StackTraceElement[] trace) {
    Set<String> helpers = Set.of("Suite", "Scene", "Reader", "Check");
    return Arrays.stream(trace)
        .filter(each -> !each.getClassName().contains("."))
        .filter(each -> !helpers.contains(each.getClassName().split("\\$")[0]))
        .findFirst().map(each -> each.getFileName() + ":" + each.getLineNumber()).orElse("");
  }

  private void readAnswers() {
    try (var lines = new java.util.Scanner(System.in)) {
      while (lines.hasNextLine()) {
        answers.add(lines.nextLine());
      }
    }
  }

  /** Something that is done to the cluster; returns once it is done. */
  String ask(String what, String broker) throws InterruptedException {
    say("ask", what, broker);
    String answer = answers.poll(PATIENCE_S, TimeUnit.SECONDS);
    Check.that(answer != null && !answer.startsWith("error"), what + " " + broker + ": " + answer);
    return answer;
  }
}
