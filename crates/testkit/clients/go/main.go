// What a Go program gets from the metadata server through each of Google's three client libraries: see ../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/credentials/idtoken"
	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

const prefix = "https://www.googleapis.com/auth/"

// What a program asks of its library; some with a word more.
type questions map[string]func(ctx context.Context, word string) (string, error)

func alone(ask func(context.Context) (string, error)) func(context.Context, string) (string, error) {
	return func(ctx context.Context, _ string) (string, error) { return ask(ctx) }
}

var libraries = map[string]func() questions{
	"metadata": metadataQuestions,
	"auth":     authQuestions,
	"oauth2":   oauth2Questions,
}

// cloud.google.com/go/compute/metadata
func metadataQuestions() questions {
	token := func(ctx context.Context, scope string) (answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
	}, err error) {
		text, err := metadata.GetWithContext(ctx, "instance/service-accounts/default/token?scopes="+prefix+scope)
		if err == nil {
			err = json.Unmarshal([]byte(text), &answer)
		}
		return answer, err
	}
	return questions{
		"on-gce": func(ctx context.Context, _ string) (string, error) {
			return strconv.FormatBool(metadata.OnGCEWithContext(ctx)), nil
		},
		"project":         alone(metadata.ProjectIDWithContext),
		"numeric-project": alone(metadata.NumericProjectIDWithContext),
		"zone":            alone(metadata.ZoneWithContext),
		"instance-name":   alone(metadata.InstanceNameWithContext),
		"instance-id":     alone(metadata.InstanceIDWithContext),
		"hostname":        alone(metadata.HostnameWithContext),
		"attribute":       metadata.InstanceAttributeValueWithContext,
		"email":           metadata.EmailWithContext,
		"scopes": func(ctx context.Context, account string) (string, error) {
			scopes, err := metadata.ScopesWithContext(ctx, account)
			return strings.Join(scopes, " "), err
		},
		"token": func(ctx context.Context, scope string) (string, error) {
			answer, err := token(ctx, scope)
			return answer.AccessToken, err
		},
		"lives": func(ctx context.Context, scope string) (string, error) {
			answer, err := token(ctx, scope)
			return strconv.Itoa(answer.ExpiresIn), err
		},
		"identity": func(ctx context.Context, audience string) (string, error) {
			return metadata.GetWithContext(ctx, "instance/service-accounts/default/identity?format=full&audience="+audience)
		},
	}
}

// cloud.google.com/go/auth
func authQuestions() questions {
	found := map[string]*auth.Credentials{}
	// A program that was refused its credentials asks for them again; one that has them keeps them.
	detect := func(scope string) (*auth.Credentials, error) {
		if found[scope] == nil {
			detected, err := credentials.DetectDefault(&credentials.DetectOptions{Scopes: []string{prefix + scope}})
			if err != nil {
				return nil, err
			}
			found[scope] = detected
		}
		return found[scope], nil
	}
	return questions{
		"project": func(ctx context.Context, _ string) (string, error) {
			detected, err := detect("cloud-platform")
			if err != nil {
				return "", err
			}
			return detected.ProjectID(ctx)
		},
		"token": func(ctx context.Context, scope string) (string, error) {
			detected, err := detect(scope)
			if err != nil {
				return "", err
			}
			return value(detected.Token(ctx))
		},
		"identity": func(ctx context.Context, audience string) (string, error) {
			identity, err := idtoken.NewCredentials(&idtoken.Options{Audience: audience})
			if err != nil {
				return "", err
			}
			return value(identity.Token(ctx))
		},
	}
}

func value(token *auth.Token, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return token.Value, nil
}

// golang.org/x/oauth2/google
func oauth2Questions() questions {
	return questions{
		"project": func(ctx context.Context, _ string) (string, error) {
			found, err := google.FindDefaultCredentials(ctx)
			if err != nil {
				return "", err
			}
			return found.ProjectID, nil
		},
		"token": func(ctx context.Context, scope string) (string, error) {
			found, err := google.FindDefaultCredentials(ctx, prefix+scope)
			if err != nil {
				return "", err
			}
			return fresh(found.TokenSource)
		},
	}
}

func fresh(source oauth2.TokenSource) (string, error) {
	token, err := source.Token()
	if err != nil {
		return "", err
	}
	if !token.Valid() {
		return "", errors.New("a token that is not valid")
	}
	return token.AccessToken, nil
}

func say(line map[string]any) {
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func ask(question func(context.Context, string) (string, error), step string, word string) bool {
	begun := time.Now()
	value, err := question(context.Background(), word)
	line := map[string]any{"step": step, "milliseconds": time.Since(begun).Milliseconds()}
	if err != nil {
		line["error"] = err.Error()
	} else {
		line["value"] = value
	}
	say(line)
	return err == nil
}

func main() {
	asked := libraries[os.Args[1]]()
	input := bufio.NewScanner(os.Stdin)
	say(map[string]any{"step": "begin"})
	for _, step := range os.Args[2:] {
		if step == "wait" {
			say(map[string]any{"step": step})
			input.Scan()
			continue
		}
		name, again := strings.CutPrefix(step, "until:")
		name, word, _ := strings.Cut(name, "=")
		question, known := asked[name]
		if !known {
			fmt.Fprintln(os.Stderr, "unknown step:", step)
			os.Exit(2)
		}
		for tries := 1; !ask(question, step, word) && again && tries < 20; tries++ {
			time.Sleep(time.Second)
		}
	}
}
