package api

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// weakETag returns the weak entity tag of an answer's data.
func weakETag(data []byte) string {
	sum := sha256.Sum256(data)
	return `W/"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
}

// knownETags are the entity tags in If-None-Match.
type knownETags struct {
	any  bool     // "*" matches every tag
	tags []string // without W/, for weak comparison (RFC 9110 §8.8.3.2)
}

// knownETags parses If-None-Match. It ignores the rest of a header from its first malformed tag.
func (r *Request) knownETags() knownETags {
	var known knownETags
	for _, header := range r.headers("If-None-Match") {
		known.add(header)
	}
	return known
}

// add parses one header: a star, or tags separated by commas. A tag may itself contain commas.
func (k *knownETags) add(header string) {
	if strings.TrimSpace(header) == "*" {
		k.any = true
		return
	}
	for rest := header; ; {
		rest = strings.TrimPrefix(strings.TrimLeft(rest, " \t,"), "W/")
		if !strings.HasPrefix(rest, `"`) {
			return
		}
		end := strings.IndexByte(rest[1:], '"')
		if end < 0 {
			return
		}
		k.tags = append(k.tags, rest[:end+2])
		rest = rest[end+2:]
	}
}

// given reports whether the client sent any tag.
func (k *knownETags) given() bool { return k.any || len(k.tags) > 0 }

// has reports whether the client knows the tag.
func (k *knownETags) has(etag string) bool {
	etag = strings.TrimPrefix(etag, "W/")
	for _, tag := range k.tags {
		if tag == etag {
			return true
		}
	}
	return k.any
}
