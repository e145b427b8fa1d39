// What tools ask and change: DefaultMQAdminExt, on which mqadmin and the dashboard are built.

import java.util.Objects;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

final class Tools {
  private Tools() {}

  static void table(Suite suite) {
    looks(suite);
    changes(suite);
    created(suite);
  }

  private static void looks(Suite suite) {
    suite.add("tool.cluster", "A tool is told of brokers and their addresses", x -> {
      var table = x.admin().examineBrokerClusterInfo().getBrokerAddrTable();
      Check.equal(Set.of("broker-a", "broker-b"), table.keySet());
      table.values().forEach(each -> Check.that(each.selectBrokerAddr() != null, "no address"));
    });
    suite.add("tool.topics", "A tool is told of all topics", x -> Check.that(
        x.admin().fetchAllTopicList().getTopicList().contains(x.topic()), "it is missing"));
    suite.add("tool.route", "A tool is told of a topic's queues", x -> {
      int queues = x.admin().examineTopicRouteInfo(x.topic()).getQueueDatas().stream()
          .mapToInt(each -> each.getWriteQueueNums()).sum();
      Check.equal(4, queues);
    });
    suite.add("tool.names", "The names of the cluster and of a broker lead to brokers", x -> {
      String cluster = x.admin().examineBrokerClusterInfo().getClusterAddrTable().keySet()
          .iterator().next();
      Check.soon(() -> x.admin().examineTopicRouteInfo(cluster).getBrokerDatas().size() == 2,
          "both brokers");
      Check.equal(1, x.admin().examineTopicRouteInfo("broker-a").getBrokerDatas().size());
    });
    suite.add("tool.topic-stats", "A tool is told of the bounds of a topic's queues", x -> {
      x.sendTo(x.queues().get(1), "1", "2", "3");
      var table = x.admin().examineTopicStats(x.topic()).getOffsetTable();
      Check.equal(4, table.size());
      Check.equal(3L, table.get(x.queues().get(1)).getMaxOffset());
    });
    suite.add("tool.topic-config", "A tool is told of a topic's configuration", x -> {
      TopicConfig config = x.admin().examineTopicConfig(address(x), x.topic());
      Check.equal(x.topic() + " 2 2", config.getTopicName() + " " + config.getReadQueueNums()
          + " " + config.getWriteQueueNums());
    });
    suite.add("tool.group-stats", "A tool is told how far a group is", x -> {
      Reader reader = x.reader().start();
      x.send("1", "2", "3");
      reader.getsOnly("1", "2", "3");
      reader.stop();
      x.send("4", "5");
      Check.soon(() -> x.admin().examineConsumeStats(x.group()).computeTotalDiff() == 2, "a lag");
    });
    suite.add("tool.group-of-topic", "A tool is told who consumes a topic", x -> {
      Reader reader = x.reader().start();
      x.send("1");
      reader.gets(1);
      Check.soon(() -> x.admin().queryTopicConsumeByWho(x.topic()).getGroupList()
          .contains(x.group()), "the group");
    });
    suite.add("tool.consumers", "A tool is told of a group's members", x -> {
      Reader reader = x.reader().tags("a").start();
      Check.soon(() -> x.admin().examineConsumerConnectionInfo(x.group()).getConnectionSet().stream()
          .anyMatch(each -> each.getClientId()
              .equals(reader.consumer.buildMQClientId())), "the member");
      Check.equal("a", x.admin().examineConsumerConnectionInfo(x.group()).getSubscriptionTable()
          .get(x.topic()).getSubString());
    });
    suite.add("tool.producers", "A tool is told of a producer group's members", x -> {
      x.send("1");
      var found = Check.succeeds(() -> x.admin().examineProducerConnectionInfo(
          x.group("producers"), x.topic()));
      Check.equal(Set.of(x.producer().buildMQClientId()), found.getConnectionSet().stream()
          .map(each -> each.getClientId()).collect(Collectors.toSet()));
    });
    suite.add("tool.running", "A tool is told what a running consumer does", x -> {
      Reader reader = x.reader().start();
      x.send("1");
      reader.gets(1);
      var found = Check.succeeds(() -> x.admin().getConsumerRunningInfo(
          x.group(), reader.consumer.buildMQClientId(), false));
      Check.that(found.getMqTable().keySet().stream()
          .anyMatch(each -> each.getTopic().equals(x.topic())), "its queues");
    });
    suite.add("tool.stacks", "A tool is told of a running consumer's threads", x -> {
      Reader reader = x.reader().start();
      var found = Check.succeeds(() -> x.admin().getConsumerRunningInfo(
          x.group(), reader.consumer.buildMQClientId(), true));
      Check.that(found.getJstack().contains("RebalanceService"), "its threads");
    });
    suite.add("tool.directly", "A tool can hand one message to a running consumer", x -> {
      SendResult sent = x.send("1").get(0);
      Reader reader = x.reader().start();
      reader.gets(1);
      Check.succeeds(() -> x.admin().consumeMessageDirectly(
          x.group(), reader.consumer.buildMQClientId(), x.topic(), sent.getMsgId()));
      reader.getsOnly("1", "1");
    });
    suite.add("tool.message", "A tool finds a message by its id", x -> {
      SendResult sent = x.send("1").get(0);
      Message found = Check.succeeds(() ->
          x.admin().viewMessage(x.topic(), sent.getOffsetMsgId()));
      Check.equal("1", Scene.body(found));
    });
    suite.add("tool.spans", "A tool is told the time between messages of a group", x -> {
      Reader reader = x.reader().start();
      x.send("1");
      reader.gets(1);
      Check.equal(4, x.admin().queryConsumeTimeSpan(x.topic(), x.group()).size());
    });
    suite.add("tool.status", "A tool is told of a broker's state", x -> Check.that(
        x.admin().fetchBrokerRuntimeStats(address(x)).getTable().get("brokerVersionDesc") != null,
        "no version"));
    suite.add("tool.settings", "A tool is told of a broker's settings", x -> Check.equal("broker-a",
        x.admin().getBrokerConfig(address(x)).getProperty("brokerName")));
  }

  private static void changes(Suite suite) {
    suite.add("tool.creates-topic", "A topic that a tool creates takes messages", x -> {
      x.admin().createAndUpdateTopicConfig(address(x), new TopicConfig(x.newTopic(), 3, 3, 6));
      Check.succeeds(() -> x.send(new Message(x.newTopic(), "one".getBytes())));
      Check.equal(3, x.producer().fetchPublishMessageQueues(x.newTopic()).size());
    });
    suite.add("tool.creates-everywhere", "A topic has queues on each broker that a tool asks", x -> {
      Check.soon(() -> x.admin().examineBrokerClusterInfo().getBrokerAddrTable().size() == 2,
          "both brokers");
      for (var broker : x.admin().examineBrokerClusterInfo().getBrokerAddrTable().values()) {
        x.admin().createAndUpdateTopicConfig(
            broker.selectBrokerAddr(), new TopicConfig(x.newTopic(), 3, 3, 6));
      }
      Check.soon(() -> x.admin().examineTopicRouteInfo(x.newTopic()).getQueueDatas().stream()
          .mapToInt(each -> each.getWriteQueueNums()).sum() == 6, "6 queues");
    });
    suite.add("tool.grows-topic", "A tool can give a topic more queues", x -> {
      x.admin().createAndUpdateTopicConfig(address(x), new TopicConfig(x.topic(), 6, 6, 6));
      Check.soon(() -> x.queues().size() == 8, "8 queues");
    });
    suite.add("tool.read-only", "A topic that a tool makes read-only takes no messages", x -> {
      x.send("before");
      for (var broker : x.admin().examineBrokerClusterInfo().getBrokerAddrTable().values()) {
        x.admin().createAndUpdateTopicConfig(
            broker.selectBrokerAddr(), new TopicConfig(x.topic(), 2, 2, 4));
      }
      Check.soon(() -> {
        try {
          x.producer().send(x.message("after"));
          return false;
        } catch (org.apache.rocketmq.client.exception.MQClientException
            | org.apache.rocketmq.client.exception.MQBrokerException refused) {
          return true;
        }
      }, "a refusal");
    });
    suite.add("tool.group-config", "A tool sets and reads a group's settings", x -> {
      x.reader().start();
      for (var broker : x.admin().examineBrokerClusterInfo().getBrokerAddrTable().values()) {
        String address = broker.selectBrokerAddr();
        var config = Check.succeeds(() -> Objects.requireNonNull(
            x.admin().examineSubscriptionGroupConfig(address, x.group())));
        config.setRetryMaxTimes(3);
        x.admin().createAndUpdateSubscriptionGroupConfig(address, config);
        Check.soon(() -> x.admin().examineSubscriptionGroupConfig(address, x.group())
            .getRetryMaxTimes() == 3, "3 tries");
      }
    });
  }

  /** On a cluster that creates topics when a message comes. */
  private static void created(Suite suite) {
    suite.add("created.by-sending", "A topic that is not there is created by sending to it", x -> {
      x.send(new Message(x.newTopic(), "one".getBytes()));
      Reader reader = x.reader().topic(x.newTopic(),
          org.apache.rocketmq.client.consumer.MessageSelector.byTag("*")).start();
      reader.getsOnly("one");
    }).on("creating");
    suite.add("created.queues", "A topic is created with as many queues as its producer says", x -> {
      x.producer().setDefaultTopicQueueNums(3);
      String name = x.newTopic();
      x.send(new Message(name, "one".getBytes()));
      Check.soon(() -> {
        Set<MessageQueue> queues = Set.copyOf(x.producer().fetchPublishMessageQueues(name));
        return !queues.isEmpty()
            && queues.stream().allMatch(each -> each.getQueueId() < 3);
      }, "queues 0 to 2");
    }).on("creating");
    suite.add("created.illegal", "A name that no topic may have is not created", x ->
        Check.refused(() -> x.producer().send(new Message("no topic!", "x".getBytes()))))
        .on("creating");
  }

  private static String address(Scene x) throws Exception {
    return x.admin().examineBrokerClusterInfo().getBrokerAddrTable().get("broker-a")
        .selectBrokerAddr();
  }
}
