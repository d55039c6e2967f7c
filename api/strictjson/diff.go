package strictjson

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxPathName is the maximum length of a member's name in a path, in bytes.
const maxPathName = 64

// Diff returns the paths at which two values differ, such as "rows[0].amount". It returns at most
// limit paths, in the order of the canonical form. A member or element that only one value has is
// one path. Values with equal canonical forms, and only these, have no path. Paths never contain
// values.
func Diff(a, b Value, limit int) []string {
	d := differ{limit: limit}
	d.compare("", a, b)
	return d.paths
}

// differ collects the paths of differences, up to its limit.
type differ struct {
	limit int
	paths []string
}

func (d *differ) full() bool { return len(d.paths) >= d.limit }

func (d *differ) add(path string) {
	if !d.full() {
		d.paths = append(d.paths, path)
	}
}

func (d *differ) compare(path string, a, b Value) {
	switch {
	case d.full():
	case a.Kind() != b.Kind():
		d.add(path)
	case a.Kind() == Object:
		d.objects(path, a, b)
	case a.Kind() == Array:
		d.arrays(path, a, b)
	case a.Text() != b.Text():
		d.add(path)
	}
}

// objects compares objects by merging their sorted members.
func (d *differ) objects(path string, a, b Value) {
	as, bs := appendSorted(nil, a), appendSorted(nil, b)
	for (len(as) > 0 || len(bs) > 0) && !d.full() {
		switch {
		case len(bs) == 0 || len(as) > 0 && as[0].name() < bs[0].name():
			d.add(memberPath(path, as[0].name()))
			as = as[1:]
		case len(as) == 0 || bs[0].name() < as[0].name():
			d.add(memberPath(path, bs[0].name()))
			bs = bs[1:]
		default:
			d.member(path, as[0], bs[0])
			as, bs = as[1:], bs[1:]
		}
	}
}

// member compares members with the same name. It builds the path only if they may differ.
func (d *differ) member(path string, a, b Value) {
	if isScalar(a) && isScalar(b) && a.Kind() == b.Kind() && a.Text() == b.Text() {
		return
	}
	d.compare(memberPath(path, a.name()), a, b)
}

// arrays compares arrays element by element.
func (d *differ) arrays(path string, a, b Value) {
	na, nb := a.at+1, b.at+1
	for i := 0; (na < a.node().end || nb < b.node().end) && !d.full(); i++ {
		itemPath := elementPath(path, i)
		switch {
		case nb >= b.node().end:
			d.add(itemPath)
			na = a.doc.nodes[na].end
		case na >= a.node().end:
			d.add(itemPath)
			nb = b.doc.nodes[nb].end
		default:
			d.compare(itemPath, Value{a.doc, na}, Value{b.doc, nb})
			na, nb = a.doc.nodes[na].end, b.doc.nodes[nb].end
		}
	}
}

func isScalar(v Value) bool { return v.Kind() < Array }

// elementPath appends the index of an element to a path.
func elementPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// memberPath appends a member to a path. A plain name follows a dot. Any other name follows in
// brackets, quoted and shortened.
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
