package main

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
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

// errNotASecret refuses a missing or malformed webhook secret.
var errNotASecret error = &failure{exitUsage, errors.New("the webhook secret of WEBHOOK_SECRET or --secret must be " +
	"whsec_ and 32 bytes in standard base64, as the API returned it; if it is lost, rotate it: svcctl secret rotate")}

// webhookSecrets returns the secrets in the values of --secret. Without the flag it returns the
// secrets of the environment, if any. It refuses a malformed secret.
func (c *ctl) webhookSecrets(flags []string) ([]string, error) {
	var secrets []string
	for _, flag := range flags {
		secret, err := c.secretOf(flag, "")
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, secret)
	}
	if len(flags) == 0 {
		for _, name := range []string{secretVariable, nextSecretVariable} {
			if secret := c.getenv(name); secret != "" {
				secrets = append(secrets, secret)
			}
		}
	}
	return secrets, checkSecrets(secrets)
}

// secretOf returns the secret in the value of a flag: the value itself or, for @FILE, the content
// of the file. If the value is "", it returns the environment variable, which may also be "".
func (c *ctl) secretOf(flag, variable string) (string, error) {
	if flag == "" && variable != "" {
		return c.getenv(variable), nil
	}
	name, isFile := strings.CutPrefix(flag, "@")
	if !isFile {
		return flag, nil
	}
	content, err := os.ReadFile(name)
	if err != nil {
		source := "--secret"
		if variable == nextSecretVariable {
			source = "--next-secret"
		}
		return "", fail(exitUsage, "%s: %w", source, err)
	}
	return strings.TrimSpace(string(content)), nil
}

// checkSecrets returns errNotASecret if one of the strings cannot be a webhook secret. The error
// does not contain the string.
func checkSecrets(secrets []string) error {
	for _, secret := range secrets {
		encoded, ok := strings.CutPrefix(secret, "whsec_")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(key) != sha256.Size || base64.StdEncoding.EncodeToString(key) != encoded {
			return errNotASecret
		}
	}
	return nil
}
