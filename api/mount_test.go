package api_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"partnerbilling/api"
)

func TestMounts(t *testing.T) {
	g := newTestServer(t, func(c *api.Config) {
		c.Mounts = []api.Mount{{Path: "/ops/queues", Handler: func(f *fiber.Ctx) error {
			if f.Path() == "/ops/queues/panic" {
				panic("mounted")
			}
			return f.SendString(f.Method() + f.Path() + string(f.Body()))
		}}}
	})
	send := func(method, path, body string) string {
		text := method + " " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + strconv.Itoa(len(body)) +
			"\r\n\r\n" + body
		a := g.RawUnchecked(text, 1)[0]
		if a.Status != 200 {
			return strconv.Itoa(a.Status)
		}
		return string(a.Body)
	}
	for _, c := range [][4]string{
		{"GET", "/ops/queues", "", "GET/ops/queues"},
		{"POST", "/ops/queues/api/x", "body", "POST/ops/queues/api/xbody"},
		{"POST", "/ops/queues/", strings.Repeat("b", 64<<10+1), "413"},
		{"GET", "/ops/queues/panic", "", "500"},
		{"GET", "/ops", "", "404"},
		{"GET", "/ops/queuesx", "", "404"},
	} {
		if got := send(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("%s %s: %.60s, want %s", c[0], c[1], got, c[3])
		}
	}
}
