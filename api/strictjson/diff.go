package strictjson

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxPathName is how many bytes of a member's name a path shows.
const maxPathName = 64

// Diff names the places where two values differ, such as "rows[0].amount", at most limit of them, in the order of the
// canonical form. A member or element that only one side has is one place. It names nothing exactly when the canonical
// forms are equal. It never shows a value.
func Diff(a, b Value, limit int) []string {
	d := differ{limit: limit}
	d.compare("", a, b)
	return d.places
}

type differ struct {
	limit  int
	places []string
}

func (d *differ) full() bool { return len(d.places) >= d.limit }

func (d *differ) differs(path string) {
	if !d.full() {
		d.places = append(d.places, path)
	}
}

func (d *differ) compare(path string, a, b Value) {
	switch {
	case d.full():
	case a.Kind() != b.Kind():
		d.differs(path)
	case a.Kind() == Object:
		d.objects(path, a, b)
	case a.Kind() == Array:
		d.arrays(path, a, b)
	case a.Text() != b.Text():
		d.differs(path)
	}
}

// objects merges the two sorted lists of members.
func (d *differ) objects(path string, a, b Value) {
	as, bs := appendSorted(nil, a), appendSorted(nil, b)
	for (len(as) > 0 || len(bs) > 0) && !d.full() {
		switch {
		case len(bs) == 0 || len(as) > 0 && as[0].name() < bs[0].name():
			d.differs(memberPath(path, as[0].name()))
			as = as[1:]
		case len(as) == 0 || bs[0].name() < as[0].name():
			d.differs(memberPath(path, bs[0].name()))
			bs = bs[1:]
		default:
			d.member(path, as[0], bs[0])
			as, bs = as[1:], bs[1:]
		}
	}
}

// member compares two members of one name; the path is only built for places that may differ.
func (d *differ) member(path string, a, b Value) {
	if isScalar(a) && isScalar(b) && a.Kind() == b.Kind() && a.Text() == b.Text() {
		return
	}
	d.compare(memberPath(path, a.name()), a, b)
}

func (d *differ) arrays(path string, a, b Value) {
	na, nb := a.at+1, b.at+1
	for i := 0; (na < a.node().end || nb < b.node().end) && !d.full(); i++ {
		place := elementPath(path, i)
		switch {
		case nb >= b.node().end:
			d.differs(place)
			na = a.doc.nodes[na].end
		case na >= a.node().end:
			d.differs(place)
			nb = b.doc.nodes[nb].end
		default:
			d.compare(place, Value{a.doc, na}, Value{b.doc, nb})
			na, nb = a.doc.nodes[na].end, b.doc.nodes[nb].end
		}
	}
}

func isScalar(v Value) bool { return v.Kind() < Array }

func elementPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// memberPath writes a plain name after a dot and any other, which only an unknown field can have, as a quoted and
// shortened string in brackets.
func memberPath(path, name string) string {
	if !isPlainName(name) {
		return path + "[" + string(appendString(nil, shorten(name))) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func isPlainName(name string) bool {
	return name != "" && len(name) <= maxPathName && strings.IndexFunc(name, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0
}

func shorten(name string) string {
	if len(name) <= maxPathName {
		return name
	}
	cut := maxPathName
	for !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + "…"
}
