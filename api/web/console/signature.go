package console

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"partnerbilling/models"
)

// signatureCheck is the result of comparing a claimed x-svc-signature of a body with the right one.
type signatureCheck struct {
	HasSecret bool   // without a secret, nothing is compared
	Expected  string // the right one, made with the current secret
	Claimed   string // as pasted; "" for none
	Matches   bool
	Diagnosis string // of a claimed signature that does not match
}

// checkSignature checks a claimed signature of a body. claimed is "" to get only the right one.
func (v *visit) checkSignature(body []byte, claimed string) (signatureCheck, error) {
	check := signatureCheck{Claimed: claimed}
	secrets, err := v.console.Secrets(v.ctx, v.principal.OrganisationID)
	if errors.Is(err, models.ErrNoWebhookSecret) {
		return check, nil
	}
	if err != nil {
		return check, err
	}
	check.HasSecret = true
	check.Expected = encodeMAC(mac([]byte(secrets.Current.Reveal()), body))
	if claimed == "" {
		return check, nil
	}
	check.Matches = hmac.Equal([]byte(claimed), []byte(check.Expected))
	if !check.Matches {
		check.Diagnosis = diagnose(secrets, body, claimed)
	}
	return check, nil
}

// mac returns the HMAC-SHA256 of the message.
func mac(key, message []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(message)
	return m.Sum(nil)
}

func encodeMAC(sum []byte) string { return base64.StdEncoding.EncodeToString(sum) }

// mistake is a usual mistake of receivers: a wrong key, body or encoding of the signature.
type mistake struct {
	what  string // the diagnosis
	key   []byte
	body  []byte
	write func([]byte) string
}

// diagnose returns a message about the mistake that leads to the claimed signature.
func diagnose(secrets models.WebhookSecrets, body []byte, claimed string) string {
	secret := secrets.Current.Reveal()
	bare := strings.TrimPrefix(secret, "whsec_")
	decoded, _ := base64.StdEncoding.DecodeString(bare)
	digest := sha256.Sum256([]byte(secret))
	key := []byte(secret)
	mistakes := []mistake{
		{"The HMAC is right, but in hexadecimal. Write it in standard Base64.", key, body, hex.EncodeToString},
		{"The HMAC is right, but in URL-safe Base64. Use the standard alphabet.", key, body,
			base64.URLEncoding.EncodeToString},
		{"The HMAC is right, but without the padding (=) of Base64.", key, body, base64.RawStdEncoding.EncodeToString},
		{"The key lacks the prefix whsec_. Use the secret's whole text.", []byte(bare), body, encodeMAC},
		{"The key is the decoded secret, which is for webhook-signature. x-svc-signature uses the secret's text.",
			decoded, body, encodeMAC},
		{"The key is a hash of the secret. Use the secret's text.", digest[:], body, encodeMAC},
		{"The key has a line break at its end.", []byte(secret + "\n"), body, encodeMAC},
		{"The body has a line break at its end that was not sent.", key, append(bytes.Clone(body), '\n'), encodeMAC},
	}
	for what, changed := range reserialised(body) {
		mistakes = append(mistakes, mistake{what, key, changed, encodeMAC})
	}
	for _, m := range mistakes {
		if strings.EqualFold(m.write(mac(m.key, m.body)), claimed) {
			return m.what
		}
	}
	for _, other := range secrets.Live {
		if encodeMAC(mac([]byte(other.Reveal()), body)) == claimed {
			return "The key is another live secret. During a rotation, x-svc-signature uses the current one."
		}
	}
	return "It matches no usual mistake. Sign the exact bytes of the body with the secret's whole text as the key, " +
		"and write the HMAC-SHA256 in standard Base64."
}

// reserialised returns the bodies that a receiver may make by parsing the JSON and writing it
// again. The keys are the diagnoses.
func reserialised(body []byte) map[string][]byte {
	const what = "The body was parsed and written again: verify the bytes as they arrived"
	forms := map[string][]byte{}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return forms
	}
	if sorted, err := json.Marshal(value); err == nil {
		forms[what+" (the order of the fields changed)."] = sorted
	}
	for indent, name := range map[string]string{"  ": "two spaces", "    ": "four spaces", "\t": "a tab"} {
		var b bytes.Buffer
		if json.Indent(&b, body, "", indent) == nil {
			forms[what+" (white space was added, indented by "+name+")."] = b.Bytes()
		}
	}
	spaced := bytes.ReplaceAll(bytes.ReplaceAll(body, []byte(`":`), []byte(`": `)), []byte(`,"`), []byte(`, "`))
	forms[what+" (spaces were added after : and ,)."] = spaced
	return forms
}
