import com.google.auth.oauth2.ComputeEngineCredentials;
import com.google.auth.oauth2.GoogleCredentials;
import com.google.auth.oauth2.IdTokenCredentials;
import com.google.auth.oauth2.IdTokenProvider;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** What google-auth is asked. */
final class Google {
  static final Map<String, Client.Question> QUESTIONS = new HashMap<>();

  static {
    QUESTIONS.put("project", word -> ((ComputeEngineCredentials) credentials("cloud-platform")).getProjectId());
    QUESTIONS.put("email", word -> ((ComputeEngineCredentials) credentials("cloud-platform")).getAccount());
    QUESTIONS.put("universe", word -> credentials("cloud-platform").getUniverseDomain());
    QUESTIONS.put("token", scope -> credentials(scope).refreshAccessToken().getTokenValue());
    QUESTIONS.put("identity", Google::identity);
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
}
