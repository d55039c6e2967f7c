package main

import (
	"crypto/sha256"
	"encoding/base64"
	"os"
	"strings"
)

// The environment variables that hold the webhook secrets. The flags --secret and --next-secret
// replace them. The second one holds the next secret during a rotation.
const (
	secretVariable     = "WEBHOOK_SECRET"
	nextSecretVariable = "WEBHOOK_NEXT_SECRET"
)

// secretHelp says in the help where commands take webhook secrets from.
const secretHelp = `Put the secret into WEBHOOK_SECRET and, during a rotation, the next one into WEBHOOK_NEXT_SECRET, or
name a file that holds it: --secret @FILE. Other users of the machine can read a secret in a flag,
in the list of processes.`

// notASecret refuses a missing or malformed webhook secret. source names the variable or the flag
// that holds it. The error does not contain the secret.
func notASecret(source string) error {
	return fail(exitUsage, "%s must be whsec_ and 32 bytes in standard base64, as the API returned it; "+
		"if it is lost, rotate it: svcctl secret rotate", source)
}

// errNoSecret refuses to run without a webhook secret.
var errNoSecret = notASecret(secretVariable + " or --secret")

// webhookSecrets returns the secrets in the values of --secret. Without the flag it returns the
// secrets of the environment, if any. It refuses a malformed secret.
func (c *ctl) webhookSecrets(flags []string) ([]string, error) {
	var secrets []string
	for _, value := range flags {
		secret, err := readSecret("--secret", value)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, secret)
	}
	if len(flags) > 0 {
		return secrets, nil
	}
	for _, name := range []string{secretVariable, nextSecretVariable} {
		secret, err := c.secretOf("", "", name)
		if err != nil {
			return nil, err
		}
		if secret != "" {
			secrets = append(secrets, secret)
		}
	}
	return secrets, nil
}

// secretOf returns the secret in the value of a flag or, if that is "", in an environment variable.
// It returns "" if both are "", and refuses a malformed secret.
func (c *ctl) secretOf(flag, value, variable string) (string, error) {
	if value != "" {
		return readSecret(flag, value)
	}
	secret := c.getenv(variable)
	if secret == "" {
		return "", nil
	}
	return secret, checkSecret(variable, secret)
}

// readSecret returns the secret in the value of a flag: the value itself or, for @FILE, the content
// of the file. It refuses a malformed secret.
func readSecret(flag, value string) (string, error) {
	if name, isFile := strings.CutPrefix(value, "@"); isFile {
		content, err := os.ReadFile(name)
		if err != nil {
			return "", fail(exitUsage, "%s: %w", flag, err)
		}
		value = strings.TrimSpace(string(content))
	}
	return value, checkSecret(flag, value)
}

// checkSecret returns the error of notASecret if a string cannot be a webhook secret.
func checkSecret(source, secret string) error {
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) != sha256.Size || base64.StdEncoding.EncodeToString(key) != encoded {
		return notASecret(source)
	}
	return nil
}
