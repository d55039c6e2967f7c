package docs

import (
	"bytes"
	"fmt"
	"html/template"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// guide is a rendered guide.
type guide struct {
	Name  string // the name of its file without the ending
	Title string // its first heading
	Theme string // what it is about, from the list of guides; "" for README.md
	Body  template.HTML
}

// guideSet is all guides, in the order in which README.md lists them.
type guideSet struct {
	home guide // README.md
	list []guide
}

// listedGuide matches a row of the list of guides in README.md: the guide's name and theme.
var listedGuide = regexp.MustCompile(`(?m)^\| \[([a-z-]+)\.md\]\([a-z-]+\.md\) \| (.+) \|$`)

// firstHeading matches the title of a guide.
var firstHeading = regexp.MustCompile(`(?m)^# (.+)$`)

// markdown converts guides from CommonMark with tables, as GitHub shows them.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(
	parser.WithAutoHeadingID()))

// readGuides renders README.md and the guides that it lists.
func readGuides() (guideSet, error) {
	home, err := readGuide("README", "")
	if err != nil {
		return guideSet{}, err
	}
	set := guideSet{home: home}
	list, err := guideFiles.ReadFile("guides/README.md")
	if err != nil {
		return guideSet{}, fmt.Errorf("docs: list of guides: %w", err)
	}
	for _, row := range listedGuide.FindAllStringSubmatch(string(list), -1) {
		g, err := readGuide(row[1], row[2])
		if err != nil {
			return guideSet{}, err
		}
		set.list = append(set.list, g)
	}
	return set, nil
}

func readGuide(name, theme string) (guide, error) {
	source, err := guideFiles.ReadFile("guides/" + name + ".md")
	if err != nil {
		return guide{}, fmt.Errorf("docs: guide %s: %w", name, err)
	}
	title := firstHeading.FindSubmatch(source)
	if title == nil {
		return guide{}, fmt.Errorf("docs: guide %s has no title", name)
	}
	tree := markdown.Parser().Parse(text.NewReader(source))
	mapLinks(tree)
	var body bytes.Buffer
	if err := markdown.Renderer().Render(&body, source, tree); err != nil {
		return guide{}, fmt.Errorf("docs: guide %s: %w", name, err)
	}
	html := template.HTML(scrollWide(body.String())) //nolint:gosec // made from embedded guides
	return guide{Name: name, Title: string(title[1]), Theme: theme, Body: html}, nil
}

// mapLinks turns links between files into links between pages.
func mapLinks(tree ast.Node) {
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, ok := n.(*ast.Link); ok && entering {
			link.Destination = []byte(pageOf(string(link.Destination)))
		}
		return ast.WalkContinue, nil
	})
}

// pageOf returns the URL path of the guide that a link between files leads to. Other links stay as
// they are.
func pageOf(link string) string {
	file, fragment, _ := strings.Cut(link, "#")
	name, ok := strings.CutSuffix(file, ".md")
	if !ok || strings.Contains(name, "/") {
		return link
	}
	page := path.Join(Path, "guides", name)
	if fragment != "" {
		page += "#" + fragment
	}
	return page
}

// scrollWide lets each wide table and code block scroll by itself, also by keyboard.
func scrollWide(html string) string {
	html = strings.NewReplacer("</table>", "</table></div>", "<pre>", `<pre tabindex="0">`).Replace(html)
	parts := strings.Split(html, "<table>")
	for n, part := range parts[1:] { // screen readers need distinct names
		const open = `<div class="wide" tabindex="0" role="region" aria-label="Table %d"><table>`
		parts[n+1] = fmt.Sprintf(open, n+1) + part
	}
	return strings.Join(parts, "")
}

// notInAnchor matches the characters that anchors leave out.
var notInAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)

// anchor returns the URL fragment of a heading, as markdown generates it. The heading must have no
// underscore: markdown replaces it by a dash.
func anchor(heading string) string {
	return strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}
