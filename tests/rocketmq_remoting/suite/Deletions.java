// What tools remove: releases from 5 on.

import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.exception.MQClientException;

final class Deletions {
  private Deletions() {}

  static void table(Suite suite) {
    suite.add("tool.deletes-topic", "A topic that a tool deletes has no route", x -> {
      x.send("one");
      var brokers = x.admin().examineBrokerClusterInfo().getBrokerAddrTable().values().stream()
          .map(each -> each.selectBrokerAddr()).collect(Collectors.toSet());
      x.admin().deleteTopicInBroker(brokers, x.topic());
      x.admin().deleteTopicInNameServer(
          Set.copyOf(x.admin().getNameServerAddressList()), x.topic());
      Check.soon(() -> {
        try {
          x.admin().examineTopicRouteInfo(x.topic());
          return false;
        } catch (MQClientException gone) {
          return true;
        }
      }, "no route");
    });
    suite.add("tool.deletes-group", "A group that a tool deletes begins again", x -> {
      Reader first = x.reader().start();
      x.send("1", "2");
      first.getsOnly("1", "2");
      first.stop();
      Thread.sleep(1_000);
      for (var broker : x.admin().examineBrokerClusterInfo().getBrokerAddrTable().values()) {
        x.admin().deleteSubscriptionGroup(broker.selectBrokerAddr(), x.group(), true);
      }
      x.reader().start().getsOnly("1", "2");
    });
  }
}
