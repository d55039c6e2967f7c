package webhook

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"partnerbilling/models"
)

// countedBody is an endless body that counts the bytes that were read.
type countedBody struct{ read int }

func (b *countedBody) Read(p []byte) (int, error) {
	b.read += len(p)
	return copy(p, bytes.Repeat([]byte("x"), len(p))), nil
}

func (b *countedBody) Close() error { return nil }

// At most 64 KiB of an answer are read, and 2 KiB kept.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	body := &countedBody{}
	head := readHead(&http.Response{Proto: "HTTP/1.1", Status: "200 OK", Body: body})
	if body.read != 64<<10 || len(head) != 2<<10 || !bytes.HasPrefix(head, []byte("HTTP/1.1 200 OK\r\n\r\nxx")) {
		t.Errorf("read %d bytes, kept %d: %.30q", body.read, len(head), head)
	}
	shortBody := io.NopCloser(bytes.NewReader([]byte("short")))
	short := readHead(&http.Response{Proto: "HTTP/1.1", Status: "200 OK", Body: shortBody})
	if string(short) != "HTTP/1.1 200 OK\r\n\r\nshort" {
		t.Errorf("kept %q", short)
	}
}

// The default time-out and the length of kept answers are those of the contract.
func TestDefaultLimits(t *testing.T) {
	t.Parallel()
	s := NewSender(Config{})
	defer s.Close()
	if s.timeout != 10*time.Second || models.WebhookHeadLimit != 2048 {
		t.Errorf("time-out %s, %d bytes kept", s.timeout, models.WebhookHeadLimit)
	}
}
