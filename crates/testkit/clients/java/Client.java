import com.amazonaws.SdkBaseException;
import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import software.amazon.awssdk.core.exception.SdkException;

/** What a Java program gets from the metadata server through each library: see ../README.md. */
public final class Client {
  interface Question {
    String ask(String word) throws IOException;
  }

  private static Map<String, Question> questions(String library) {
    switch (library) {
      case "google-auth":
        return Google.QUESTIONS;
      case "aws-sdk-1":
        return Aws1.QUESTIONS;
      case "aws-sdk-2":
        return Aws2.QUESTIONS;
      default:
        throw new IllegalArgumentException(library);
    }
  }

  private static void say(Map<String, Object> line) {
    System.out.println(new Gson().toJson(line));
    System.out.flush();
  }

  private static boolean ask(Question question, String step, String word) {
    long begun = System.nanoTime();
    Map<String, Object> line = new HashMap<>();
    line.put("step", step);
    try {
      line.put("value", question.ask(word));
    } catch (IOException | SdkBaseException | SdkException error) {
      // As a program that does not catch it shows it: with its causes.
      StringWriter trace = new StringWriter();
      error.printStackTrace(new PrintWriter(trace));
      line.put("error", trace.toString());
    }
    line.put("milliseconds", (System.nanoTime() - begun) / 1_000_000);
    say(line);
    return line.containsKey("value");
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    Map<String, Question> questions = questions(arguments[0]);
    say(Map.of("step", "begin"));
    for (String step : Arrays.asList(arguments).subList(1, arguments.length)) {
      if (step.equals("wait")) {
        say(Map.of("step", step));
        input.readLine();
        continue;
      }
      String[] words = step.replace("until:", "").split("=", 2);
      String word = words.length > 1 ? words[1] : "";
      int tries = step.startsWith("until:") ? 20 : 1;
      while (!ask(questions.get(words[0]), step, word) && --tries > 0) {
        Thread.sleep(1000);
      }
    }
    System.exit(0);
  }
}
