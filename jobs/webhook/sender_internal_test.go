package webhook

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"partnerbilling/models"
)

// countedBody is an endless body that counts the bytes that are read of it.
type countedBody struct{ read int }

func (b *countedBody) Read(p []byte) (int, error) {
	b.read += len(p)
	return copy(p, bytes.Repeat([]byte("x"), len(p))), nil
}

func (b *countedBody) Close() error { return nil }

// An answer costs no more than 64 KiB to read and 2 KiB to keep.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	body := &countedBody{}
	head := readHead(&http.Response{Proto: "HTTP/1.1", Status: "200 OK", Body: body})
	if body.read != 64<<10 || len(head) != 2<<10 || !bytes.HasPrefix(head, []byte("HTTP/1.1 200 OK\r\n\r\nxx")) {
		t.Errorf("read %d bytes, kept %d: %.30q", body.read, len(head), head)
	}
	short := readHead(&http.Response{Proto: "HTTP/1.1", Status: "200 OK", Body: io.NopCloser(bytes.NewReader([]byte("short")))})
	if string(short) != "HTTP/1.1 200 OK\r\n\r\nshort" {
		t.Errorf("kept %q", short)
	}
}

// An exchange takes at most what partners are promised, unless a configuration says otherwise.
func TestTimeoutOfAnExchange(t *testing.T) {
	t.Parallel()
	s := NewSender(Config{})
	defer s.Close()
	if s.timeout != 10*time.Second || models.WebhookHeadLimit != 2048 {
		t.Errorf("time-out %s, %d bytes kept", s.timeout, models.WebhookHeadLimit)
	}
}
