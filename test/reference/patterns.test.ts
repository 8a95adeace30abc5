import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { NewPet } from '../../shared/schemas/pet.ts';
import { description } from '../support/description.ts';
import { pathOf } from '../support/install.ts';
import { startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';

/** Clients are generated for many languages, and all must interpret the description's patterns in the same way. */

const patterns = [...new Set(patternsOf(JSON.parse(description)))];

function patternsOf(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  const { pattern } = value as { pattern?: unknown };
  return [...(typeof pattern === 'string' ? [pattern] : []), ...Object.values(value).flatMap(patternsOf)];
}

const SAMPLES = [
  ...['Spot', 'Cleo', 'Snoopy', 'Rex', 'pP{Cc}', 'Rex 🐕', 'Zoë', '犬', 'x', ' Rex ', 'e\u0301'],
  ...['', ' ', '   ', '\u00a0 ', '\u3000', 'a\u0000', 'a\u0007b', 'a\nb', 'a\tb', '\u007f', 'a\u0085b', '\u009f'],
  ...['GET, HEAD', '"minute";q=60;w=60, "day";q=1000;w=86400', '"minute";r=59;t=59;store-limit=60', '٣', 'a b'],
  ...['order-4711', '</v1/pets?limit=20&after=20>; rel="next"', '</v1/pets>; rel="next"'],
];

const inJavaScript = (flags: string): boolean[][] =>
  patterns.map((pattern) => SAMPLES.map((sample) => new RegExp(pattern, flags).test(sample)));
const expected = inJavaScript('u');

const PYTHON = `
import json, re, sys
patterns, samples = json.load(open(sys.argv[1]))
print(json.dumps([[bool(re.search(p, s)) for s in samples] for p in patterns]))`;

const PERL = `
use JSON::PP; local $/; open my $f, '<', $ARGV[0]; my ($patterns, $samples) = @{ decode_json(<$f>) };
print encode_json([map { my $p = $_; [map { /$p/ ? JSON::PP::true : JSON::PP::false } @$samples] } @$patterns]);`;

/** Each string is passed as code points, because Java has no JSON parser. */
const JAVA = `
import java.nio.file.*; import java.util.*; import java.util.regex.*; import java.util.stream.*;
class Main {
  static String text(String codes) {
    return Arrays.stream(codes.split(" ")).filter(code -> !code.isEmpty())
      .map(code -> Character.toString(Integer.parseInt(code))).collect(Collectors.joining());
  }
  static List<String> texts(String line) { return Arrays.stream(line.split(",", -1)).map(Main::text).toList(); }
  public static void main(String[] arguments) throws Exception {
    List<String> lines = Files.readAllLines(Path.of(arguments[0]));
    System.out.println(texts(lines.get(0)).stream().map(pattern -> texts(lines.get(1)).stream()
      .map(sample -> String.valueOf(Pattern.compile(pattern).matcher(sample).find()))
      .collect(Collectors.joining(",", "[", "]"))).collect(Collectors.joining(",", "[", "]")));
  }
}`;

const GO = `
package main
import ("encoding/json"; "os"; "regexp")
func main() {
  var given [2][]string
  text, _ := os.ReadFile(os.Args[1])
  json.Unmarshal(text, &given)
  matches := [][]bool{}
  for _, pattern := range given[0] {
    row := []bool{}
    for _, sample := range given[1] { row = append(row, regexp.MustCompile(pattern).MatchString(sample)) }
    matches = append(matches, row)
  }
  json.NewEncoder(os.Stdout).Encode(matches)
}`;

const asJson = JSON.stringify([patterns, SAMPLES]);
const codePoints = (one: string) => [...one].map((character) => character.codePointAt(0)).join(' ');
const asCodePoints = [patterns, SAMPLES].map((texts) => texts.map(codePoints).join(',')).join('\n');

const folder = await temporaryFolder();

test('JavaScript interprets every pattern in the same way with and without the u flag', () => {
  expect(patterns.length).toBeGreaterThan(5);
  expect(inJavaScript('')).toEqual(expected);
});

// Java and Go compile the program first, which takes seconds, so only CI runs them.
const PROGRAMS = [
  ['python3', [], 'match.py', PYTHON, asJson],
  ['perl', [], 'match.pl', PERL, asJson],
  ['java', [], 'Main.java', JAVA, asCodePoints],
  ['go', ['run'], 'main.go', GO, asJson],
] as const;

test.for(PROGRAMS.slice(0, thoroughly(PROGRAMS.length, 2)))(
  '%s interprets every pattern as JavaScript does',
  async ([command, args, file, program, given], { skip }) => {
    if (pathOf(command) === undefined) skip(`${command} is not on PATH`);
    const [source, input] = [join(folder, file), join(folder, `${file}.given`)];
    writeFileSync(source, program);
    writeFileSync(input, given);
    const { code, out, err } = await startProcess(command, [...args, source, input], {}).ended;
    expect([code, err]).toEqual([0, '']);
    expect(JSON.parse(out)).toEqual(expected);
  },
);

const published = JSON.parse(description).components.schemas.NewPet.properties.name;
const [pattern, none] = [new RegExp(published.pattern), new RegExp(published.not.pattern)];

test('a name accepted by a published pattern is accepted by the service', () => {
  for (const name of SAMPLES) {
    const isDescribed = name !== '' && pattern.test(name) && !none.test(name);
    expect([name, isDescribed]).toEqual([name, NewPet.safeParse({ name, categoryId: 1 }).success]);
  }
});

/** In Python, Perl and Java `$` also matches before a final line feed, so no sample above ends with one. */
test('a pattern without an anchor refuses a line feed at the end of a name', () => {
  expect(none.test('Rex\n')).toBe(true);
});
