/** What people and scripts type instead of a limit. A limit is plain digits, 1 to 10^9; none of these is one. */
export const NAUGHTY_VALUES: readonly string[] = [
  // Numbers for some parsers.
  ...'nan NaN -nan inf Infinity -inf 1e3 1E3 6e1 1e-3 1e400 0x3C 0X3c 0b111 0o74'.split(' '),
  ...'0 00 0000000000 -0 -1 -60 +5 +60 --5 60.0 60. .5 1,000 1.000 1_000'.split(' '),
  ...['1 000', "1'000"],
  ...['1000000001', '2147483648', '4294967296', '9007199254740993', '9223372036854775808', '18446744073709551616'],
  ...'00000000060 60n 60L 60f 60/1 1e 0x ½ 1/2 60% #60 60s'.split(' '),
  ...['9'.repeat(30), `0.${'0'.repeat(400)}1`, '6 0', '$60'],
  // Whitespace of all kinds.
  ...['', ' ', ' 60', '60 ', '\t60', '60\n', '60\r\n', '\u00a060', '60\u200b', '\ufeff60', '\u202e60', '60\u2028'],
  // Digits of other scripts, and lookalikes.
  ...'６０ ٦٠ ६० ๖๐ ⑥⓪ ² Ⅵ l0 6O sixty sechzig 六十 𝟞𝟘 🔟 6️⃣0️⃣ 💯 👩‍👩‍👧‍👦'.split(' '),
  // Null values and lists.
  ...'null nil undefined none true false unlimited max * - ? {} [] [60] {"minute":60} "60"'.split(' '),
  ...["'60'"],
  // For code that evaluates, formats, splits or quotes it.
  ...'%s%s%n %d %99999d {{60}} 60; 60||1'.split(' '),
  ...['\0', '60\0', '\u0001\u001b[31m60', '\u0024{60}', '$(echo 60)', '`60`', '60 # x', '60 --'],
  ...'<script>60</script> ../../etc/passwd os.exit()'.split(' '),
  ...["60'; DROP TABLE plans; --", "1' OR '1'='1", '60\n70', '\n60 60 60 60 60', '60 60', 'return 60'],
  ...'__proto__ constructor toString hasOwnProperty free.minute'.split(' '),
  ...['60\r\nHSET gateway:plans free.minute 1', '*3\r\n$3\r\nSET\r\n'],
  ...['Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞', 'ﷺ', '\ufffd', '7'.repeat(10_000), 'x'.repeat(10_000)],
];
