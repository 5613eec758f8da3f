import com.google.auth.oauth2.ComputeEngineCredentials;
import com.google.auth.oauth2.GoogleCredentials;
import com.google.auth.oauth2.IdTokenCredentials;
import com.google.auth.oauth2.IdTokenProvider;
import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** What a Java program gets from the metadata server through google-auth: see ../README.md. */
public final class Client {
  private interface Question {
    String ask(String word) throws IOException;
  }

  private static final Map<String, Question> QUESTIONS = new HashMap<>();

  static {
    QUESTIONS.put("project", word -> ((ComputeEngineCredentials) credentials("cloud-platform")).getProjectId());
    QUESTIONS.put("email", word -> ((ComputeEngineCredentials) credentials("cloud-platform")).getAccount());
    QUESTIONS.put("universe", word -> credentials("cloud-platform").getUniverseDomain());
    QUESTIONS.put("token", scope -> credentials(scope).refreshAccessToken().getTokenValue());
    QUESTIONS.put("identity", Client::identity);
  }

  private static final Map<String, GoogleCredentials> FOUND = new HashMap<>();

  /** A program that was refused its credentials asks for them again; one that has them keeps them. */
  private static GoogleCredentials credentials(String scope) throws IOException {
    if (!FOUND.containsKey(scope)) {
      GoogleCredentials found = GoogleCredentials.getApplicationDefault();
      FOUND.put(scope, found.createScoped("https://www.googleapis.com/auth/" + scope));
    }
    return FOUND.get(scope);
  }

  private static String identity(String audience) throws IOException {
    IdTokenCredentials identity =
        IdTokenCredentials.newBuilder()
            .setIdTokenProvider((IdTokenProvider) credentials("cloud-platform"))
            .setTargetAudience(audience)
            .setOptions(List.of(IdTokenProvider.Option.FORMAT_FULL))
            .build();
    identity.refresh();
    return identity.getIdToken().getTokenValue();
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
    } catch (IOException error) {
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
      while (!ask(QUESTIONS.get(words[0]), step, word) && --tries > 0) {
        Thread.sleep(1000);
      }
    }
    System.exit(0);
  }
}
