import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Apache's verdicts on expressions and properties, as its broker would give them.
 *
 * A line of standard input is an expression and then NAME=VALUE for each property, between spaces;
 * all but the names is UTF-8 in hexadecimal. It is answered by a line: R, the expression is refused;
 * T, the message matches; F, it does not.
 */
public final class Judge {
    private Judge() {}

    private record Message(Map<String, String> properties) implements EvaluationContext {
        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(properties);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = System.out;
        // The parser prints what it refuses.
        System.setOut(new PrintStream(PrintStream.nullOutputStream()));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(verdict(line.split(" ")));
        }
        out.flush();
    }

    private static char verdict(String[] words) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text(words[0]));
        } catch (Throwable refused) {
            return 'R';
        }
        Map<String, String> properties = new HashMap<>();
        for (int at = 1; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            properties.put(pair[0], text(pair[1]));
        }
        try {
            return Boolean.TRUE.equals(expression.evaluate(new Message(properties))) ? 'T' : 'F';
        } catch (Throwable undecided) {
            return 'F';
        }
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
