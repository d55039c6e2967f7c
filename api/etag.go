package api

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// weakETag is the weak entity tag of an answer's data.
func weakETag(data []byte) string {
	sum := sha256.Sum256(data)
	return `W/"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
}

// knownETags are the entity tags that a client has already, from If-None-Match.
type knownETags struct {
	any  bool     // "*": whatever there is
	tags []string // without W/, as the comparison is the weak one (RFC 9110 §8.8.3.2)
}

// knownETags reads If-None-Match. What cannot be understood matches nothing.
func (r *Request) knownETags() knownETags {
	var known knownETags
	for _, header := range r.headers("If-None-Match") {
		known.add(header)
	}
	return known
}

// add reads one header: a star, or tags with commas between them. A tag may itself hold commas.
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

// given reports whether the client said anything.
func (k *knownETags) given() bool { return k.any || len(k.tags) > 0 }

// has reports whether the client has the answer with this tag already.
func (k *knownETags) has(etag string) bool {
	etag = strings.TrimPrefix(etag, "W/")
	for _, tag := range k.tags {
		if tag == etag {
			return true
		}
	}
	return k.any
}
